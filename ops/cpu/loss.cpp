#include <tandem/ops/loss.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include <tandem/core/base/clones.h>
#include <tandem/ops/cpu/kernels.h>
#include <tandem/ops/cpu/parallel.h>
#include <tandem/ops/cpu/softmax_row.h>
#include <tandem/ops/cpu/vector_math.h>
#include <tandem/ops/label_check.h>

namespace tandem::engine {
namespace {

constexpr std::int64_t kTile = 256;

// Subtracts `largest` and `log_sum` one after the other: their sum would lose the bits of a small logarithm.
TANDEM_CLONES void shift_row(const float* x, float* y, std::int64_t n, float largest, float log_sum) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) y[i] = (x[i] - largest) - log_sum;
}

// y = (y·factor − target)·g
TANDEM_CLONES void gradient_row(float* y, std::int64_t n, float factor, float target, float g) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = (y[i] * factor - target) * g;
}

// Σ (x − largest)
double sum_shifted(const float* x, std::int64_t n, float largest) {
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += static_cast<double>(x[i] - largest);
  return sum;
}

// log Σ exp(x − largest), without storing all exponentials.
double log_sum_exp(const float* x, std::int64_t n, float largest) {
  float exponentials[kTile];
  double sum = 0;
  for (std::int64_t i = 0; i < n; i += kTile)
    sum += exp_row(x + i, exponentials, std::min(kTile, n - i), largest);
  return std::log(sum);
}

struct Rows {
  std::int64_t count, size;
  int threads;
  explicit Rows(const KernelSpec& spec)
      : count(spec.inputs[0].elements() / spec.inputs[0].shape.back()),
        size(spec.inputs[0].shape.back()),
        threads(useful_threads(spec.threads, 4 * spec.inputs[0].bytes())) {}
  /// Calls `f(row)` for every row.
  template <class F> void each(const F& f) const {
    parallel_parts(threads, count, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) f(r);
    });
  }
};

}  // namespace

KernelPtr make_softmax_cpu(const KernelSpec& spec) {
  if (spec.inputs[0].dtype != DType::f32) return nullptr;
  return make_kernel(
      [rows = Rows(spec), logarithm = static_cast<const SoftmaxOp&>(spec.op).logarithm](const Launch& l) {
        rows.each([&](std::int64_t r) {
          const float* x = input<float>(l, 0) + r * rows.size;
          float* y = output<float>(l, 0) + r * rows.size;
          const float largest = row_max(x, rows.size);
          if (logarithm)
            shift_row(x, y, rows.size, largest, static_cast<float>(log_sum_exp(x, rows.size, largest)));
          else
            scale_row(y, rows.size, 1 / exp_row(x, y, rows.size, largest));
        });
      });
}

KernelPtr make_cross_entropy_cpu(const KernelSpec& spec) {
  if (spec.inputs[0].dtype != DType::f32) return nullptr;
  const Rows rows(spec);
  const auto run = [rows, targets = static_cast<const CrossEntropyOp&>(spec.op).targets](const Launch& l) {
    const double smoothing = targets.smoothing;
    const auto* labels = input<std::int32_t>(l, 1);
    auto* losses = static_cast<double*>(l.workspace);
    const std::int64_t samples = count_labels(labels, rows.count, rows.size, targets.ignored);
    rows.each([&](std::int64_t r) {
      losses[r] = 0;
      if (labels[r] == targets.ignored) return;
      const float* x = input<float>(l, 0) + r * rows.size;
      const float largest = row_max(x, rows.size);
      const double log_sum = log_sum_exp(x, rows.size, largest);
      losses[r] = log_sum - (1 - smoothing) * (static_cast<double>(x[labels[r]]) - largest);
      if (smoothing > 0)
        losses[r] -= smoothing / static_cast<double>(rows.size) * sum_shifted(x, rows.size, largest);
    });
    double sum = 0;
    for (std::int64_t r = 0; r < rows.count; ++r) sum += losses[r];
    *output<float>(l, 0) = samples == 0 ? 0 : static_cast<float>(sum / static_cast<double>(samples));
  };
  return make_kernel(run, rows.count * static_cast<std::int64_t>(sizeof(double)));
}

KernelPtr make_cross_entropy_grad_cpu(const KernelSpec& spec) {
  if (spec.inputs[0].dtype != DType::f32) return nullptr;
  return make_kernel([rows = Rows(spec),
                      targets = static_cast<const CrossEntropyGradOp&>(spec.op).targets](const Launch& l) {
    const double smoothing = targets.smoothing;
    const auto* labels = input<std::int32_t>(l, 1);
    const std::int64_t samples = count_labels(labels, rows.count, rows.size, targets.ignored);
    const float g = *input<float>(l, 2) / static_cast<float>(samples);
    rows.each([&](std::int64_t r) {
      const float* x = input<float>(l, 0) + r * rows.size;
      float* y = output<float>(l, 0) + r * rows.size;
      if (labels[r] == targets.ignored) {
        std::fill_n(y, rows.size, 0.0f);
        return;
      }
      const float sum = exp_row(x, y, rows.size, row_max(x, rows.size));
      float& labeled = y[labels[r]];
      if (smoothing == 0) {
        labeled -= sum;  // (p − 1)·sum
        return scale_row(y, rows.size, g / sum);
      }
      const double share = smoothing / static_cast<double>(rows.size);
      const float by_label = (labeled / sum - static_cast<float>(1 - smoothing + share)) * g;
      gradient_row(y, rows.size, 1 / sum, static_cast<float>(share), g);
      labeled = by_label;
    });
  });
}

}  // namespace tandem::engine
