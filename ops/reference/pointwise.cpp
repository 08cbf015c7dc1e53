#include <tandem/ops/broadcast.h>
#include <tandem/ops/pointwise.h>
#include <tandem/ops/pointwise_math.h>
#include <tandem/ops/reference/kernels.h>

namespace tandem::engine {
namespace {

template <class T> T load_as(DType dtype, const void* data, std::int64_t i) {
  return visit_dtype(dtype,
                     [&](auto zero) { return static_cast<T>(static_cast<const decltype(zero)*>(data)[i]); });
}

template <class T> void store_from(DType dtype, void* data, std::int64_t i, T value) {
  visit_dtype(dtype, [&](auto zero) {
    static_cast<decltype(zero)*>(data)[i] = convert_element<decltype(zero)>(value);
  });
}

template <class T> T round_to(DType dtype, T value) {
  return visit_dtype(dtype,
                     [&](auto zero) { return static_cast<T>(convert_element<decltype(zero)>(value)); });
}

// Evaluates an expression element by element, register by register, with arithmetic in T.
template <class T> class ReferencePointwise final : public Kernel {
 public:
  explicit ReferencePointwise(const KernelSpec& spec)
      : expression_(static_cast<const PointwiseOp&>(spec.op).expression),
        types_(spec.inputs.begin(), spec.inputs.end()),
        out_(spec.outputs[0]) {
    for (const auto& t : types_) strides_.push_back(broadcast_strides(t.shape, out_.shape));
  }
  std::int64_t workspace() const override {
    return static_cast<std::int64_t>(expression_.size() * sizeof(T));
  }
  void run(const Launch& l) const override {
    T* registers = static_cast<T*>(l.workspace);
    const std::int64_t n = out_.elements();
    for (std::int64_t i = 0; i < n; ++i) {
      for (std::size_t r = 0; r < expression_.size(); ++r)
        registers[r] = value(expression_[r], registers, l, i);
      store_from(out_.dtype, l.out[0], i, registers[expression_.size() - 1]);
    }
  }

 private:
  T value(const PointwiseTerm& instruction, const T* registers, const Launch& l, std::int64_t i) const {
    const auto in = [&](int r) { return r < 0 ? T(0) : registers[r]; };
    switch (instruction.code) {
      case PointwiseCode::input: {
        const auto k = static_cast<std::size_t>(instruction.a);
        return load_as<T>(types_[k].dtype, l.in[k], position(out_.shape, strides_[k], i));
      }
      case PointwiseCode::constant: return static_cast<T>(instruction.immediate);
      case PointwiseCode::cast: return round_to(static_cast<DType>(instruction.b), in(instruction.a));
      default: break;
    }
    T result{};
    visit_code(instruction.code, [&](auto code) {
      result = pointwise_element<decltype(code)::value, StandardMath>(in(instruction.a), in(instruction.b),
                                                                      in(instruction.c));
    });
    return result;
  }

  PointwiseExpression expression_;
  Types types_;
  TensorType out_;
  std::vector<Strides> strides_;
};

}  // namespace

KernelPtr make_pointwise_reference(const KernelSpec& spec) {
  if (pointwise_precision(spec.inputs, spec.outputs[0].dtype) == DType::f64)
    return std::make_unique<ReferencePointwise<double>>(spec);
  return std::make_unique<ReferencePointwise<float>>(spec);
}

}  // namespace tandem::engine
