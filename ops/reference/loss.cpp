#include <tandem/ops/loss.h>

#include <algorithm>
#include <cmath>

#include <tandem/ops/label_check.h>
#include <tandem/ops/reference/kernels.h>

namespace tandem::engine {
namespace {

// log softmax of a row, in double: (x − max) − log Σ exp(x − max). The two are subtracted one after the
// other, because their sum would lose the bits of a small logarithm.
template <class T> class LogSoftmax {
 public:
  LogSoftmax(const T* x, std::int64_t n) : x_(x), largest_(*std::max_element(x, x + n)) {
    double sum = 0;
    for (std::int64_t i = 0; i < n; ++i) sum += std::exp(x[i] - largest_);
    log_sum_ = std::log(sum);
  }
  double operator()(std::int64_t i) const { return (x_[i] - largest_) - log_sum_; }

 private:
  const T* x_;
  double largest_, log_sum_;
};

}  // namespace

KernelPtr make_softmax_reference(const KernelSpec& spec) {
  const std::int64_t n = spec.inputs[0].shape.back(), rows = spec.inputs[0].elements() / n;
  const bool logarithm = static_cast<const SoftmaxOp&>(spec.op).logarithm;
  return make_for<float, double>(spec.inputs[0].dtype, [=](auto zero) {
    using T = decltype(zero);
    return make_kernel([=](const Launch& l) {
      for (std::int64_t r = 0; r < rows; ++r) {
        const T* x = input<T>(l, 0) + r * n;
        T* y = output<T>(l, 0) + r * n;
        const LogSoftmax log_p(x, n);
        for (std::int64_t i = 0; i < n; ++i) y[i] = static_cast<T>(logarithm ? log_p(i) : std::exp(log_p(i)));
      }
    });
  });
}

KernelPtr make_cross_entropy_reference(const KernelSpec& spec) {
  const std::int64_t samples = spec.inputs[0].shape[0], classes = spec.inputs[0].shape[1];
  const Targets targets = static_cast<const CrossEntropyOp&>(spec.op).targets;
  return make_for<float, double>(spec.inputs[0].dtype, [=](auto zero) {
    using T = decltype(zero);
    return make_kernel([=](const Launch& l) {
      const auto* labels = input<std::int32_t>(l, 1);
      const std::int64_t counted = count_labels(labels, samples, classes, targets.ignored);
      const double smoothing = targets.smoothing, share = smoothing / static_cast<double>(classes);
      double sum = 0;
      for (std::int64_t r = 0; r < samples; ++r) {
        if (labels[r] == targets.ignored) continue;
        const T* x = input<T>(l, 0) + r * classes;
        const LogSoftmax log_p(x, classes);
        sum -= (1 - smoothing) * log_p(labels[r]);
        if (share > 0)
          for (std::int64_t i = 0; i < classes; ++i) sum -= share * log_p(i);
      }
      *output<T>(l, 0) = counted == 0 ? 0 : static_cast<T>(sum / static_cast<double>(counted));
    });
  });
}

KernelPtr make_cross_entropy_grad_reference(const KernelSpec& spec) {
  const std::int64_t samples = spec.inputs[0].shape[0], classes = spec.inputs[0].shape[1];
  const Targets targets = static_cast<const CrossEntropyGradOp&>(spec.op).targets;
  return make_for<float, double>(spec.inputs[0].dtype, [=](auto zero) {
    using T = decltype(zero);
    return make_kernel([=](const Launch& l) {
      const auto* labels = input<std::int32_t>(l, 1);
      const std::int64_t counted = count_labels(labels, samples, classes, targets.ignored);
      const double smoothing = targets.smoothing, share = smoothing / static_cast<double>(classes);
      const double g = *input<T>(l, 2) / static_cast<double>(counted);
      for (std::int64_t r = 0; r < samples; ++r) {
        const T* x = input<T>(l, 0) + r * classes;
        T* y = output<T>(l, 0) + r * classes;
        if (labels[r] == targets.ignored) {
          std::fill_n(y, classes, T{0});
          continue;
        }
        const LogSoftmax log_p(x, classes);
        for (std::int64_t i = 0; i < classes; ++i)
          y[i] = static_cast<T>((std::exp(log_p(i)) - share - (i == labels[r] ? 1 - smoothing : 0)) * g);
      }
    });
  });
}

}  // namespace tandem::engine
