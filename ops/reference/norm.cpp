// Batch norm as plain loops on one thread. Sums are in double: first the mean, then the squares around it.
#include <cmath>

#include <tandem/ops/norm.h>
#include <tandem/ops/reference/kernels.h>

namespace tandem::engine {
namespace {

struct BatchNormSize {
  std::int64_t rows, channels;
};
BatchNormSize size_of_norm(const KernelSpec& spec) {
  const std::int64_t channels = spec.inputs[0].shape.back();
  return {spec.inputs[0].elements() / channels, channels};
}

template <class T>
void statistics(const BatchNormSize& s, double epsilon, const T* x, T* mean, T* variance, T* inv_std) {
  for (std::int64_t c = 0; c < s.channels; ++c) {
    double sum = 0, squares = 0;
    for (std::int64_t r = 0; r < s.rows; ++r) sum += static_cast<double>(x[r * s.channels + c]);
    const double m = sum / static_cast<double>(s.rows);
    for (std::int64_t r = 0; r < s.rows; ++r) {
      const double d = static_cast<double>(x[r * s.channels + c]) - m;
      squares += d * d;
    }
    const double v = squares / static_cast<double>(s.rows);
    mean[c] = static_cast<T>(m);
    variance[c] = static_cast<T>(v);
    inv_std[c] = static_cast<T>(1 / std::sqrt(v + epsilon));
  }
}

template <class T> void batch_norm(const BatchNormSize& s, double epsilon, const Launch& l) {
  const auto in = [&](int i) { return input<T>(l, i); };
  const auto out = [&](int i) { return output<T>(l, i); };
  statistics(s, epsilon, in(0), out(1), out(2), out(3));
  for (std::int64_t r = 0; r < s.rows; ++r)
    for (std::int64_t c = 0; c < s.channels; ++c) {
      const std::int64_t i = r * s.channels + c;
      out(0)[i] = (in(0)[i] - out(1)[c]) * (out(3)[c] * in(1)[c]) + in(2)[c];
    }
}

// Computes the two sums of BatchNormSumsOp per channel; `g` is the gradient of y.
template <class T>
void sums(const BatchNormSize& s, const T* x, const T* mean, const T* g, T* sum, T* product) {
  for (std::int64_t c = 0; c < s.channels; ++c) {
    double total = 0, products = 0;
    for (std::int64_t r = 0; r < s.rows; ++r) {
      const double gradient = static_cast<double>(g[r * s.channels + c]);
      total += gradient;
      products += gradient * (static_cast<double>(x[r * s.channels + c]) - static_cast<double>(mean[c]));
    }
    sum[c] = static_cast<T>(total);
    product[c] = static_cast<T>(products);
  }
}

// Evaluates the expression into the workspace, then computes the sums.
class ReferenceSums final : public Kernel {
 public:
  explicit ReferenceSums(const KernelSpec& spec) : size_(size_of_norm(spec)), gradient_(spec.inputs[0]) {
    const auto& op = static_cast<const BatchNormSumsOp&>(spec.op);
    const PointwiseOp expression(op.rounded(), gradient_.dtype);
    const Types outputs{gradient_};
    expression_ = make_pointwise_reference(
        {expression, spec.inputs.subspan(2), outputs, spec.tag, spec.threads, spec.microbatches, 0});
  }
  std::int64_t workspace() const override { return gradient_bytes() + expression_->workspace(); }
  void run(const Launch& l) const override {
    auto* scratch = static_cast<std::byte*>(l.workspace);
    void* gradient[] = {scratch};
    expression_->run({l.in + 2, gradient, scratch + gradient_bytes(), l.batch, l.rank});
    const auto add_up = [&](auto zero) {
      using T = decltype(zero);
      sums(size_, input<T>(l, 0), input<T>(l, 1), static_cast<const T*>(gradient[0]), output<T>(l, 0),
           output<T>(l, 1));
    };
    gradient_.dtype == DType::f64 ? add_up(double()) : add_up(float());
  }

 private:
  std::int64_t gradient_bytes() const { return (gradient_.bytes() + 63) / 64 * 64; }
  BatchNormSize size_;
  TensorType gradient_;
  KernelPtr expression_;
};

}  // namespace

KernelPtr make_batch_norm_reference(const KernelSpec& spec) {
  const BatchNormSize s = size_of_norm(spec);
  const double epsilon = static_cast<const BatchNormOp&>(spec.op).epsilon;
  return make_for<float, double>(spec.inputs[0].dtype, [=](auto zero) {
    return make_kernel([=](const Launch& l) { batch_norm<decltype(zero)>(s, epsilon, l); });
  });
}

KernelPtr make_batch_norm_statistics_reference(const KernelSpec& spec) {
  const BatchNormSize s = size_of_norm(spec);
  const double epsilon = static_cast<const BatchNormStatisticsOp&>(spec.op).epsilon;
  return make_for<float, double>(spec.inputs[0].dtype, [=](auto zero) {
    using T = decltype(zero);
    return make_kernel([=](const Launch& l) {
      statistics(s, epsilon, input<T>(l, 0), output<T>(l, 0), output<T>(l, 1), output<T>(l, 2));
    });
  });
}

KernelPtr make_batch_norm_sums_reference(const KernelSpec& spec) {
  return make_for<float, double>(spec.inputs[0].dtype,
                                 [&](auto) { return std::make_unique<ReferenceSums>(spec); });
}

}  // namespace tandem::engine
