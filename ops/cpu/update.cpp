#if defined(__SSE2__) && !defined(TANDEM_SANITIZED)
#define TANDEM_STREAMING_STORES
#include <emmintrin.h>
#endif

#include <algorithm>
#include <cstdint>

#include <tandem/core/base/clones.h>
#include <tandem/ops/cpu/kernels.h>
#include <tandem/ops/cpu/parallel.h>
#include <tandem/ops/update_math.h>

namespace tandem::engine {
namespace {

TANDEM_CLONES void sgd_momentum(const SgdOptions& options, float lr, const float* w, const float* v,
                                const float* g, float* new_w, float* new_v, std::int64_t n) {
  sgd_elements(options, lr, w, v, g, new_w, new_v, n);
}

TANDEM_CLONES void sgd_plain(const SgdOptions& options, float lr, const float* w, const float* g,
                             float* new_w, std::int64_t n) {
  sgd_elements(options, lr, w, g, new_w, n);
}

TANDEM_CLONES void adam(const AdamFactors<float>& factors, const float* w, const float* m, const float* v,
                        const float* g, float* new_w, float* new_m, float* new_v, std::int64_t n) {
  adam_elements(factors, w, m, v, g, new_w, new_m, new_v, n);
}

TANDEM_CLONES void predict_part(float c, const float* w, const float* v, float* predicted, std::int64_t n) {
  predict_elements(c, w, v, predicted, n);
}

// The same for many elements, which are not in a cache. The results go straight to memory, which is not read
// first.
void predict_streaming(float c, const float* w, const float* v, float* predicted, std::int64_t n) {
#ifdef TANDEM_STREAMING_STORES
  if (predicted == w || predicted == v) return predict_part(c, w, v, predicted, n);  // just read
  constexpr std::int64_t kWidth = 4;
  constexpr std::uintptr_t kAligned = kWidth * sizeof(float);
  std::int64_t i = 0;
  while (i < n && reinterpret_cast<std::uintptr_t>(predicted + i) % kAligned != 0) ++i;
  predict_elements(c, w, v, predicted, i);
  const __m128 factor = _mm_set1_ps(c);
  for (; i + kWidth <= n; i += kWidth)
    _mm_stream_ps(predicted + i, _mm_sub_ps(_mm_loadu_ps(w + i), _mm_mul_ps(factor, _mm_loadu_ps(v + i))));
  _mm_sfence();  // other threads see the results before they see that the kernel has ended
  predict_elements(c, w + i, v + i, predicted + i, n - i);
#else
  predict_part(c, w, v, predicted, n);
#endif
}

const float* in(const Launch& l, int k, std::int64_t i) { return input<float>(l, k) + i; }
float* out(const Launch& l, int k, std::int64_t i) { return output<float>(l, k) + i; }

}  // namespace

KernelPtr make_sgd_update_cpu(const KernelSpec& spec) {
  if (spec.inputs[0].dtype != DType::f32) return nullptr;
  const auto& op = static_cast<const SgdUpdateOp&>(spec.op);
  const int states = op.has_velocity() ? 2 : 1;  // the gradient and the rate are the inputs after these
  const Guard guard(spec, op.guarded);
  const Coefficient lr(spec, static_cast<std::size_t>(states) + 1);
  const std::int64_t n = spec.inputs[0].elements();
  const int threads = useful_threads(spec.threads, 5 * spec.inputs[0].bytes());
  return make_kernel([=, options = op.options](const Launch& l) {
    const auto part = [&](float rate, std::int64_t i, std::int64_t count) {
      if (states == 1)
        sgd_plain(options, rate, in(l, 0, i), in(l, 1, i), out(l, 0, i), count);
      else
        sgd_momentum(options, rate, in(l, 0, i), in(l, 1, i), in(l, 2, i), out(l, 0, i), out(l, 1, i), count);
    };
    parallel_parts(threads, n, [&](std::int64_t begin, std::int64_t end) {
      guard.visit<float>(l, states, begin, end, [&](std::int64_t first, std::int64_t last) {
        lr.visit<float>(l.in[states + 1], first, last, part);
      });
    });
  });
}

KernelPtr make_adam_update_cpu(const KernelSpec& spec) {
  if (spec.inputs[0].dtype != DType::f32) return nullptr;
  const auto& op = static_cast<const AdamUpdateOp&>(spec.op);
  const Guard guard(spec, op.guarded);
  const Coefficient lr(spec, 5), t(spec, 4);
  const std::int64_t n = spec.inputs[0].elements();
  const int threads = useful_threads(spec.threads, 7 * spec.inputs[0].bytes());
  return make_kernel([=, options = op.options, steps = spec.inputs[4]](const Launch& l) {
    const auto part = [&](double rate, std::int64_t begin, std::int64_t many) {
      t.visit<double>(l.in[4], begin, begin + many, [&](double step, std::int64_t i, std::int64_t count) {
        adam({options, step + 1, rate}, in(l, 0, i), in(l, 1, i), in(l, 2, i), in(l, 3, i), out(l, 0, i),
             out(l, 1, i), out(l, 2, i), count);
      });
    };
    parallel_parts(threads, n, [&](std::int64_t begin, std::int64_t end) {
      guard.visit<float>(l, 3, begin, end, [&](std::int64_t first, std::int64_t last) {
        lr.visit<double>(l.in[5], first, last, part);
      });
    });
    count_steps(steps, guard, l, 4, 3);
  });
}

KernelPtr make_predict_cpu(const KernelSpec& spec) {
  if (spec.inputs[0].dtype != DType::f32) return nullptr;
  const Coefficient c(spec, 2);
  const std::int64_t n = spec.inputs[0].elements();
  const int threads = useful_threads(spec.threads, 3 * spec.inputs[0].bytes());
  constexpr std::int64_t kCached = 1 << 18;  // bytes; with weights and momentum, most of an L2 cache of 1 MB
  const std::int64_t at_once = std::min(n / threads, c.per_model) * std::int64_t{sizeof(float)};
  const auto part = at_once > kCached ? predict_streaming : predict_part;
  return make_kernel([=](const Launch& l) {
    parallel_parts(threads, n, [&](std::int64_t begin, std::int64_t end) {
      c.visit<float>(l.in[2], begin, end, [&](float coefficient, std::int64_t i, std::int64_t count) {
        part(coefficient, in(l, 0, i), in(l, 1, i), out(l, 0, i), count);
      });
    });
  });
}

}  // namespace tandem::engine
