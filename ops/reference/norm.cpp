// Batch norm as plain loops on one thread: sums in double, the mean first and then the squares around it.
#include <cmath>

#include <tandem/ops/norm.h>
#include <tandem/ops/reference/kernels.h>

namespace tandem {
namespace {

struct BatchNormSize {
  std::int64_t rows, channels;
};
BatchNormSize size_of_norm(const KernelSpec& spec) {
  const std::int64_t channels = spec.inputs[0].shape.back();
  return {spec.inputs[0].elements() / channels, channels};
}

template <class T> void batch_norm(const BatchNormSize& s, double epsilon, const Launch& l) {
  const auto in = [&](int i) { return static_cast<const T*>(l.in[i]); };
  const auto out = [&](int i) { return static_cast<T*>(l.out[i]); };
  const T* x = in(0);
  for (std::int64_t c = 0; c < s.channels; ++c) {
    double sum = 0, squares = 0;
    for (std::int64_t r = 0; r < s.rows; ++r) sum += static_cast<double>(x[r * s.channels + c]);
    const double mean = sum / static_cast<double>(s.rows);
    for (std::int64_t r = 0; r < s.rows; ++r) {
      const double d = static_cast<double>(x[r * s.channels + c]) - mean;
      squares += d * d;
    }
    const double variance = squares / static_cast<double>(s.rows),
                 inv_std = 1 / std::sqrt(variance + epsilon);
    out(1)[c] = static_cast<T>(mean);
    out(2)[c] = static_cast<T>(variance);
    out(3)[c] = static_cast<T>(inv_std);
    const double gamma = static_cast<double>(in(1)[c]), beta = static_cast<double>(in(2)[c]);
    for (std::int64_t r = 0; r < s.rows; ++r)
      out(0)[r * s.channels + c] =
          static_cast<T>((static_cast<double>(x[r * s.channels + c]) - mean) * inv_std * gamma + beta);
  }
}

template <class T> void batch_norm_grad(const BatchNormSize& s, const Launch& l) {
  const auto in = [&](int i) { return static_cast<const T*>(l.in[i]); };
  const auto out = [&](int i) { return static_cast<T*>(l.out[i]); };
  const T *x = in(0), *dy = in(4);
  for (std::int64_t c = 0; c < s.channels; ++c) {
    const double gamma = static_cast<double>(in(1)[c]), mean = static_cast<double>(in(2)[c]),
                 inv_std = static_cast<double>(in(3)[c]);
    const auto normal = [&](std::int64_t r) {
      return (static_cast<double>(x[r * s.channels + c]) - mean) * inv_std;
    };
    double dgamma = 0, dbeta = 0;
    for (std::int64_t r = 0; r < s.rows; ++r) {
      const double g = static_cast<double>(dy[r * s.channels + c]);
      dgamma += g * normal(r);
      dbeta += g;
    }
    const double n = static_cast<double>(s.rows);
    for (std::int64_t r = 0; r < s.rows; ++r)
      out(0)[r * s.channels + c] =
          static_cast<T>(gamma * inv_std *
                         (static_cast<double>(dy[r * s.channels + c]) - dbeta / n - normal(r) * dgamma / n));
    out(1)[c] = static_cast<T>(dgamma);
    out(2)[c] = static_cast<T>(dbeta);
  }
}

}  // namespace

KernelPtr make_batch_norm_reference(const KernelSpec& spec) {
  const BatchNormSize s = size_of_norm(spec);
  const double epsilon = static_cast<const BatchNorm&>(spec.op).epsilon;
  switch (spec.inputs[0].dtype) {
    case DType::f32: return make_kernel([s, epsilon](const Launch& l) { batch_norm<float>(s, epsilon, l); });
    case DType::f64: return make_kernel([s, epsilon](const Launch& l) { batch_norm<double>(s, epsilon, l); });
    default: return nullptr;
  }
}
KernelPtr make_batch_norm_grad_reference(const KernelSpec& spec) {
  const BatchNormSize s = size_of_norm(spec);
  switch (spec.inputs[0].dtype) {
    case DType::f32: return make_kernel([s](const Launch& l) { batch_norm_grad<float>(s, l); });
    case DType::f64: return make_kernel([s](const Launch& l) { batch_norm_grad<double>(s, l); });
    default: return nullptr;
  }
}

}  // namespace tandem
