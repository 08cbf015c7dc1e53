// Group, layer and RMS norm of f32 or bf16, computed in f32. A sample is (pixels, channels). Loops run along
// the channels: sums of columns are added up to sums of groups in double, and values of a group are copied to
// its channels. A sample is read again while it is in cache. Only the number of samples decides how they are
// cut into chunks, so the result is the same for every team.
#include <algorithm>
#include <cmath>
#include <type_traits>

#include <tandem/core/base/clones.h>
#include <tandem/ops/cpu/kernels.h>
#include <tandem/ops/cpu/parallel.h>
#include <tandem/ops/group_norm.h>

namespace tandem::engine {
namespace {

constexpr std::int64_t kChunks = 32;  // most chunks of the samples
constexpr std::int64_t kRows = 64;    // rows added in float before their sum is added in double
constexpr std::int64_t kLanes = 16;

// sums (channels) = Σ x over rows
template <class E>
TANDEM_CLONES void sum_columns(const E* x, std::int64_t rows, std::int64_t channels, float* sums) {
  for (std::int64_t c = 0; c < channels; ++c) sums[c] = x[c];
  for (std::int64_t r = 1; r < rows; ++r)
#pragma GCC ivdep
    for (std::int64_t c = 0; c < channels; ++c) sums[c] += x[r * channels + c];
}

// sums (channels) = Σ (x − mean)² over rows
template <class E>
TANDEM_CLONES void sum_squares(const E* x, std::int64_t rows, std::int64_t channels, const float* mean,
                               float* sums) {
  std::fill_n(sums, channels, 0.0f);
  for (std::int64_t r = 0; r < rows; ++r)
#pragma GCC ivdep
    for (std::int64_t c = 0; c < channels; ++c) {
      const float d = x[r * channels + c] - mean[c];
      sums[c] += d * d;
    }
}

// sums (channels) = Σ g, products (channels) = Σ g·(x − mean) over rows
template <class E>
TANDEM_CLONES void sum_gradients(const E* x, const E* g, std::int64_t rows, std::int64_t channels,
                                 const float* mean, float* sums, float* products) {
  std::fill_n(sums, channels, 0.0f);
  std::fill_n(products, channels, 0.0f);
  for (std::int64_t r = 0; r < rows; ++r)
#pragma GCC ivdep
    for (std::int64_t c = 0; c < channels; ++c) {
      const float d = g[r * channels + c];
      sums[c] += d;
      products[c] += d * (x[r * channels + c] - mean[c]);
    }
}

// to += from
TANDEM_CLONES void add_to(const float* from, std::int64_t n, double* to) {
  for (std::int64_t i = 0; i < n; ++i) to[i] += static_cast<double>(from[i]);
}

TANDEM_CLONES double sum(const float* x, std::int64_t n) {
  float lanes[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (std::int64_t k = 0; k < kLanes; ++k) lanes[k] += x[i + k];
  double total = 0;
  for (; i < n; ++i) total += static_cast<double>(x[i]);
  for (float lane : lanes) total += static_cast<double>(lane);
  return total;
}

TANDEM_CLONES double dot(const float* x, const float* y, std::int64_t n) {
  float lanes[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (std::int64_t k = 0; k < kLanes; ++k) lanes[k] += x[i + k] * y[i + k];
  double total = 0;
  for (; i < n; ++i) total += static_cast<double>(x[i]) * static_cast<double>(y[i]);
  for (float lane : lanes) total += static_cast<double>(lane);
  return total;
}

// y = (x − mean)·scale + beta; y can be x.
template <class E>
TANDEM_CLONES void normalize(const E* x, std::int64_t rows, std::int64_t channels, const float* mean,
                             const float* scale, const float* beta, E* y) {
  for (std::int64_t r = 0; r < rows; ++r)
#pragma GCC ivdep
    for (std::int64_t c = 0; c < channels; ++c)
      y[r * channels + c] = (x[r * channels + c] - mean[c]) * scale[c] + beta[c];
}

// dx = g·scale − (x − mean)·slope − offset; dx can be x or g.
template <class E>
TANDEM_CLONES void normalize_gradient(const E* x, const E* g, std::int64_t rows, std::int64_t channels,
                                      const float* mean, const float* scale, const float* slope,
                                      const float* offset, E* dx) {
  for (std::int64_t r = 0; r < rows; ++r)
#pragma GCC ivdep
    for (std::int64_t c = 0; c < channels; ++c)
      dx[r * channels + c] =
          g[r * channels + c] * scale[c] - (x[r * channels + c] - mean[c]) * slope[c] - offset[c];
}

// A chunk's scratch memory: sums in double, then arrays of one float per channel.
struct Scratch {
  double *groups, *products;                           // (groups) each
  double *dgamma, *dbeta, *by_sum, *by_more;           // (channels) each
  float *sums, *more, *mean, *scale, *slope, *offset;  // (channels) each

  static std::int64_t doubles(const GroupNormSize& s) { return 2 * s.groups + 4 * s.channels; }
  static std::int64_t bytes(const GroupNormSize& s) {
    const auto all = doubles(s) * static_cast<std::int64_t>(sizeof(double)) +
                     6 * s.channels * static_cast<std::int64_t>(sizeof(float));
    return (all + 63) / 64 * 64;
  }
  Scratch(const GroupNormSize& s, void* workspace, std::int64_t chunk) {
    auto* d = reinterpret_cast<double*>(static_cast<std::byte*>(workspace) + chunk * bytes(s));
    groups = d;
    products = groups + s.groups;
    dgamma = products + s.groups;
    dbeta = dgamma + s.channels;
    by_sum = dbeta + s.channels;
    by_more = by_sum + s.channels;
    sums = reinterpret_cast<float*>(by_more + s.channels);
    more = sums + s.channels;
    mean = more + s.channels;
    scale = mean + s.channels;
    slope = scale + s.channels;
    offset = slope + s.channels;
  }
};

struct Norm {
  GroupNormSize s;
  bool centered;
  double epsilon;
  int threads;
  std::int64_t chunks;

  Norm(const KernelSpec& spec, std::int64_t groups, bool centered, double epsilon)
      : s(spec.inputs[0], groups),
        centered(centered),
        epsilon(epsilon),
        threads(useful_threads(spec.threads, 2 * spec.inputs[0].bytes())),
        chunks(std::min(s.samples, kChunks)) {}
  std::int64_t workspace() const { return chunks * Scratch::bytes(s); }

  // Calls f(chunk, first sample, end) for all chunks; the team shares them.
  template <class F> void for_each_chunk(const F& f) const {
    parallel_parts(threads, chunks, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) f(i, s.samples * i / chunks, s.samples * (i + 1) / chunks);
    });
  }

  // totals (groups) = sums over each group's rows and channels. `columns(first element, rows)` returns the
  // sums per channel of some rows.
  template <class F> void add_up(double* totals, const F& columns) const {
    std::fill_n(totals, s.groups, 0.0);
    for (std::int64_t r = 0; r < s.pixels; r += kRows) {
      const float* sums = columns(r * s.channels, std::min(kRows, s.pixels - r));
      for (std::int64_t g = 0; g < s.groups; ++g) totals[g] += sum(sums + g * s.width(), s.width());
    }
  }

  void spread(float value, std::int64_t group, float* to) const {
    std::fill_n(to + group * s.width(), s.width(), value);
  }

  // Computes y, inv_std (groups) and mean (groups) of one sample.
  template <class E>
  void forward(const Scratch& t, const E* x, const float* gamma, const float* beta, E* y, float* inv_std,
               float* mean) const {
    if (centered) {
      add_up(t.groups, [&](std::int64_t at, std::int64_t rows) -> const float* {
        if constexpr (std::is_same_v<E, float>)
          if (rows == 1) return x + at;
        sum_columns(x + at, rows, s.channels, t.sums);
        return t.sums;
      });
      for (std::int64_t g = 0; g < s.groups; ++g) {
        mean[g] = static_cast<float>(t.groups[g] / s.group());
        spread(mean[g], g, t.mean);
      }
    }
    add_up(t.groups, [&](std::int64_t at, std::int64_t rows) -> const float* {
      sum_squares(x + at, rows, s.channels, t.mean, t.sums);
      return t.sums;
    });
    for (std::int64_t g = 0; g < s.groups; ++g) {
      inv_std[g] = static_cast<float>(1 / std::sqrt(t.groups[g] / s.group() + epsilon));
      for (std::int64_t c = g * s.width(); c < (g + 1) * s.width(); ++c) t.scale[c] = inv_std[g] * gamma[c];
    }
    normalize(x, s.pixels, s.channels, t.mean, t.scale, beta, y);
  }

  // Writes a sample's Σ dy and Σ dy·(x − mean) over its pixels to `sums` and `more`.
  template <class E> void sum_pixels(const Scratch& t, const E* x, const E* dy) const {
    if (s.pixels <= kRows) return sum_gradients(x, dy, s.pixels, s.channels, t.mean, t.sums, t.more);
    std::fill_n(t.by_sum, 2 * s.channels, 0.0);
    for (std::int64_t r = 0; r < s.pixels; r += kRows) {
      const std::int64_t at = r * s.channels;
      sum_gradients(x + at, dy + at, std::min(kRows, s.pixels - r), s.channels, t.mean, t.sums, t.more);
      add_to(t.sums, s.channels, t.by_sum);
      add_to(t.more, s.channels, t.by_more);
    }
    for (std::int64_t c = 0; c < s.channels; ++c) {
      t.sums[c] = static_cast<float>(t.by_sum[c]);
      t.more[c] = static_cast<float>(t.by_more[c]);
    }
  }

  // Writes dx of one sample, and adds its parts of dgamma and dbeta to the chunk's. With h = dy·gamma and the
  // sums over pixels D = Σ dy and E = Σ dy·(x − mean), a group's Σ h is Σ gamma·D and its Σ h·x̂ is
  // inv_std·Σ gamma·E.
  template <class E>
  void backward(const Scratch& t, const E* x, const float* gamma, const E* dy, const float* inv_std,
                const float* mean, E* dx) const {
    if (centered)
      for (std::int64_t g = 0; g < s.groups; ++g) spread(mean[g], g, t.mean);
    sum_pixels(t, x, dy);
    for (std::int64_t g = 0; g < s.groups; ++g) {
      const std::int64_t c = g * s.width();
      t.groups[g] = dot(t.sums + c, gamma + c, s.width());
      t.products[g] = dot(t.more + c, gamma + c, s.width());
      for (std::int64_t i = c; i < c + s.width(); ++i) t.more[i] *= inv_std[g];
    }
    add_to(t.more, s.channels, t.dgamma);
    if (centered) add_to(t.sums, s.channels, t.dbeta);
    for (std::int64_t g = 0; g < s.groups; ++g) {
      const double inv = static_cast<double>(inv_std[g]);
      spread(static_cast<float>(inv * inv * inv * t.products[g] / s.group()), g, t.slope);
      spread(centered ? static_cast<float>(inv * t.groups[g] / s.group()) : 0.0f, g, t.offset);
      for (std::int64_t c = g * s.width(); c < (g + 1) * s.width(); ++c) t.scale[c] = inv_std[g] * gamma[c];
    }
    normalize_gradient(x, dy, s.pixels, s.channels, t.mean, t.scale, t.slope, t.offset, dx);
  }
};

template <class E> void run_forward(const Norm& norm, const Launch& l) {
  const GroupNormSize& s = norm.s;
  norm.for_each_chunk([&](std::int64_t chunk, std::int64_t begin, std::int64_t end) {
    const Scratch t(s, l.workspace, chunk);
    std::fill_n(t.mean, s.channels, 0.0f);
    std::fill_n(t.offset, s.channels, 0.0f);
    for (std::int64_t n = begin; n < end; ++n)
      norm.forward(t, input<E>(l, 0) + n * s.sample(), input<float>(l, 1),
                   norm.centered ? input<float>(l, 2) : t.offset, output<E>(l, 0) + n * s.sample(),
                   output<float>(l, 1) + n * s.groups,
                   norm.centered ? output<float>(l, 2) + n * s.groups : nullptr);
  });
}

template <class E> void run_backward(const Norm& norm, const Launch& l) {
  const GroupNormSize& s = norm.s;
  norm.for_each_chunk([&](std::int64_t chunk, std::int64_t begin, std::int64_t end) {
    const Scratch t(s, l.workspace, chunk);
    std::fill_n(t.mean, s.channels, 0.0f);
    std::fill_n(t.dgamma, s.channels, 0.0);
    std::fill_n(t.dbeta, s.channels, 0.0);
    for (std::int64_t n = begin; n < end; ++n)
      norm.backward(t, input<E>(l, 0) + n * s.sample(), input<float>(l, 1), input<E>(l, 2) + n * s.sample(),
                    input<float>(l, 3) + n * s.groups,
                    norm.centered ? input<float>(l, 4) + n * s.groups : nullptr,
                    output<E>(l, 0) + n * s.sample());
  });
  for (std::int64_t c = 0; c < s.channels; ++c) {
    double dgamma = 0, dbeta = 0;
    for (std::int64_t chunk = 0; chunk < norm.chunks; ++chunk) {
      const Scratch t(s, l.workspace, chunk);
      dgamma += t.dgamma[c];
      dbeta += t.dbeta[c];
    }
    output<float>(l, 1)[c] = static_cast<float>(dgamma);
    if (norm.centered) output<float>(l, 2)[c] = static_cast<float>(dbeta);
  }
}

}  // namespace

KernelPtr make_group_norm_cpu(const KernelSpec& spec) {
  const auto& op = static_cast<const GroupNormOp&>(spec.op);
  const Norm norm(spec, op.groups, op.centered, op.epsilon);
  return make_for<float, BFloat16>(spec.inputs[0].dtype, [&](auto zero) {
    return make_kernel([norm](const Launch& l) { run_forward<decltype(zero)>(norm, l); }, norm.workspace());
  });
}

KernelPtr make_group_norm_grad_cpu(const KernelSpec& spec) {
  const auto& op = static_cast<const GroupNormGradOp&>(spec.op);
  const Norm norm(spec, op.groups, op.centered, 0);
  return make_for<float, BFloat16>(spec.inputs[0].dtype, [&](auto zero) {
    return make_kernel([norm](const Launch& l) { run_backward<decltype(zero)>(norm, l); }, norm.workspace());
  });
}

}  // namespace tandem::engine
