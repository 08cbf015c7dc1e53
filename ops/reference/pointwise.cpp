#include <algorithm>

#include <tandem/ops/broadcast.h>
#include <tandem/ops/pointwise.h>
#include <tandem/ops/pointwise_math.h>
#include <tandem/ops/reference/kernels.h>

namespace tandem::engine {
namespace {

template <class T> T round_to(DType dtype, T value) {
  return visit_dtype(dtype,
                     [&](auto zero) { return static_cast<T>(convert_element<decltype(zero)>(value)); });
}

// Evaluates an expression register by register, for a few elements of a row at a time, with arithmetic in T.
template <class T> class ReferencePointwise final : public Kernel {
 public:
  explicit ReferencePointwise(const KernelSpec& spec)
      : expression_(static_cast<const PointwiseOp&>(spec.op).expression),
        types_(spec.inputs.begin(), spec.inputs.end()),
        out_(spec.outputs[0]) {
    for (const auto& t : types_) strides_.push_back(broadcast_strides(t.shape, out_.shape));
  }
  std::int64_t workspace() const override {
    return static_cast<std::int64_t>(expression_.size() * kElements * sizeof(T));
  }
  void run(const Launch& l) const override {
    T* registers = static_cast<T*>(l.workspace);
    const std::int64_t n = out_.elements(), row = out_.shape.empty() ? 1 : out_.shape.back();
    for (std::int64_t first = 0, count = 0; first < n; first += count) {
      count = std::min(kElements, row - first % row);
      T* result = registers;
      for (std::size_t r = 0; r < expression_.size(); ++r) {
        result = registers + r * kElements;
        evaluate(expression_[r], registers, l, first, count, result);
      }
      visit_dtype(out_.dtype, [&](auto zero) {
        auto* out = static_cast<decltype(zero)*>(l.out[0]) + first;
        for (std::int64_t i = 0; i < count; ++i) out[i] = convert_element<decltype(zero)>(result[i]);
      });
    }
  }

 private:
  static constexpr std::int64_t kElements = 8;

  void evaluate(const PointwiseTerm& instruction, const T* registers, const Launch& l, std::int64_t first,
                std::int64_t count, T* result) const {
    static constexpr T kZeros[kElements]{};
    const auto in = [&](int r) { return r < 0 ? kZeros : registers + r * kElements; };
    switch (instruction.code) {
      case PointwiseCode::input:
        return load(static_cast<std::size_t>(instruction.a), l, first, count, result);
      case PointwiseCode::constant:
        return std::fill(result, result + count, static_cast<T>(instruction.immediate));
      case PointwiseCode::cast:
        for (std::int64_t i = 0; i < count; ++i)
          result[i] = round_to(static_cast<DType>(instruction.b), in(instruction.a)[i]);
        return;
      default: break;
    }
    const T *a = in(instruction.a), *b = in(instruction.b), *c = in(instruction.c);
    visit_code(instruction.code, [&](auto code) {
      for (std::int64_t i = 0; i < count; ++i)
        result[i] = pointwise_element<decltype(code)::value, StandardMath>(a[i], b[i], c[i]);
    });
  }
  // Reads what input k has for the output's elements from `first` on, which are of one row.
  void load(std::size_t k, const Launch& l, std::int64_t first, std::int64_t count, T* result) const {
    const std::int64_t at = position(out_.shape, strides_[k], first),
                       stride = strides_[k].empty() ? 0 : strides_[k].back();
    visit_dtype(types_[k].dtype, [&](auto zero) {
      const auto* data = static_cast<const decltype(zero)*>(l.in[k]) + at;
      for (std::int64_t i = 0; i < count; ++i) result[i] = static_cast<T>(data[i * stride]);
    });
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
