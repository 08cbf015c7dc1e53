// Pooling of f32 or bf16, computed in f32. The team shares the rows of the output; for gradients, the rows of
// the image. One thread computes an element, in a fixed order, so the result is the same for every team.
#include <algorithm>
#include <type_traits>
#include <vector>

#include <tandem/core/base/clones.h>
#include <tandem/ops/cpu/kernels.h>
#include <tandem/ops/cpu/parallel.h>
#include <tandem/ops/pool.h>

namespace tandem::engine {
namespace {

// Inlines lambdas into the clones of a function: outside the clones they would be compiled for the oldest
// processor.
#define TANDEM_INLINE __attribute__((always_inline))

constexpr std::int64_t kChunk = 64;  // most channels summed or compared at once

// A half-open range of taps, or of positions.
struct Range {
  std::int64_t begin, end;
};

// One axis, computed when the kernel is made, because a division costs as much as many channels.
struct Axis {
  std::int64_t kernel;                // taps of the largest window
  std::vector<std::int64_t> origins;  // per window position: pixel of its first tap, can be outside the image
  std::vector<Range> taps;            // per position: its taps that lie on the image
  std::vector<Range> windows;         // per pixel of the image: the positions whose window covers it

  explicit Axis(const PoolAxis& axis)
      : kernel(axis.kernel), windows(static_cast<std::size_t>(axis.extent), Range{0, 0}) {
    for (std::int64_t o = 0; o < axis.positions; ++o) {
      const std::int64_t origin = axis.begin(o);
      origins.push_back(origin);
      taps.push_back({std::max<std::int64_t>(0, -origin), std::min(axis.end(o), axis.extent) - origin});
      for (std::int64_t t = taps.back().begin; t < taps.back().end; ++t) {
        Range& covering = windows[static_cast<std::size_t>(origin + t)];
        if (covering.end == 0) covering.begin = o;
        covering.end = o + 1;
      }
    }
  }
  std::int64_t origin(std::int64_t position) const { return origins[static_cast<std::size_t>(position)]; }
  Range taps_at(std::int64_t position) const { return taps[static_cast<std::size_t>(position)]; }
  Range windows_over(std::int64_t pixel) const { return windows[static_cast<std::size_t>(pixel)]; }
};

struct PoolPlan {
  Pool2dSize s;
  Axis h, w;
  int threads;

  PoolPlan(const KernelSpec& spec, const TensorType& image, const TensorType& output)
      : s(pool2d_size(static_cast<const Pool2dOp&>(spec.op).options, image, output)),
        h(s.h),
        w(s.w),
        threads(useful_threads(spec.threads, image.bytes() + output.bytes())) {}

  // Calls f(row, image, outputs) for all rows of all samples: `image` and `outputs` are the first elements of
  // the row's sample.
  template <class F> void for_each_row(std::int64_t rows, const F& f) const {
    parallel_parts(threads, s.n * rows, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i)
        f(i % rows, i / rows * s.image.h * s.image.w * s.channels,
          i / rows * s.output.h * s.output.w * s.channels);
    });
  }
};

// A plan that knows each output pixel's share of the pixels in its window: one divided by their number.
struct AvgPlan : PoolPlan {
  std::vector<float> shares;

  AvgPlan(const KernelSpec& spec, const TensorType& image, const TensorType& output)
      : PoolPlan(spec, image, output) {
    for (std::int64_t oh = 0; oh < s.output.h; ++oh)
      for (std::int64_t ow = 0; ow < s.output.w; ++ow)
        shares.push_back(static_cast<float>(1 / s.divisor(oh, ow)));
  }
  float share(std::int64_t oh, std::int64_t ow) const {
    return shares[static_cast<std::size_t>(oh * s.output.w + ow)];
  }
};

// Calls f(tap, pixel's offset in the image) for the taps of output pixel (oh,ow).
template <class F>
[[gnu::always_inline]] inline void for_each_tap(const PoolPlan& p, std::int64_t oh, std::int64_t ow,
                                                const F& f) {
  const Range rows = p.h.taps_at(oh), columns = p.w.taps_at(ow);
  for (std::int64_t kh = rows.begin; kh < rows.end; ++kh)
    for (std::int64_t kw = columns.begin; kw < columns.end; ++kw)
      f(static_cast<std::int32_t>(kh * p.w.kernel + kw),
        ((p.h.origin(oh) + kh) * p.s.image.w + p.w.origin(ow) + kw) * p.s.channels);
}

// Calls f(tap, oh, ow) for the output pixels whose window covers image pixel (ih,iw), row by row.
template <class F>
[[gnu::always_inline]] inline void for_each_window(const PoolPlan& p, std::int64_t ih, std::int64_t iw,
                                                   const F& f) {
  const Range rows = p.h.windows_over(ih), columns = p.w.windows_over(iw);
  for (std::int64_t oh = rows.begin; oh < rows.end; ++oh)
    for (std::int64_t ow = columns.begin; ow < columns.end; ++ow)
      f(static_cast<std::int32_t>((ih - p.h.origin(oh)) * p.w.kernel + iw - p.w.origin(ow)), oh, ow);
}

// Calls f(first channel, number of channels) for pieces of the channels. The length of a full piece is a
// compile-time constant, so that loops over it become vector code without a remainder.
template <class F> [[gnu::always_inline]] inline void for_each_piece(std::int64_t channels, const F& f) {
  std::int64_t c = 0;
  for (; c + kChunk <= channels; c += kChunk) f(c, std::integral_constant<std::int64_t, kChunk>());
  for (; c + kChunk / 2 <= channels; c += kChunk / 2)
    f(c, std::integral_constant<std::int64_t, kChunk / 2>());
  if (c < channels) f(c, channels - c);
}

// Computes one row of the output of one image.
template <class E, class I>
TANDEM_CLONES void max_row(const PoolPlan& p, std::int64_t oh, const E* image, E* y, I* index) {
  for (std::int64_t ow = 0; ow < p.s.output.w; ++ow)
    for_each_piece(p.s.channels, [&](std::int64_t c0, auto n) TANDEM_INLINE {
      float best[kChunk] = {};  // every window has a tap, but compilers cannot know that
      std::int32_t taps[kChunk] = {};
      bool first = true;
      for_each_tap(p, oh, ow, [&](std::int32_t tap, std::int64_t pixel) TANDEM_INLINE {
        const E* x = image + pixel + c0;
        if (first) {
          for (std::int64_t c = 0; c < n; ++c) best[c] = x[c];
          for (std::int64_t c = 0; c < n; ++c) taps[c] = tap;
          first = false;
          return;
        }
        for (std::int64_t c = 0; c < n; ++c) {
          const float value = x[c];
          const bool larger = !(value <= best[c]) & (best[c] == best[c]);
          best[c] = larger ? value : best[c];
          taps[c] = larger ? tap : taps[c];
        }
      });
      const std::int64_t at = ow * p.s.channels + c0;
      for (std::int64_t c = 0; c < n; ++c) y[at + c] = best[c];
      for (std::int64_t c = 0; c < n; ++c) index[at + c] = static_cast<I>(taps[c]);
    });
}

// Computes one row of the gradient of one image. share(tap, oh, ow, first element, n, sums) adds the part of
// one window to the sums of n channels.
template <class E, class F>
[[gnu::always_inline]] inline void gradient_row(const PoolPlan& p, std::int64_t ih, E* dx, const F& share) {
  for (std::int64_t iw = 0; iw < p.s.image.w; ++iw)
    for_each_piece(p.s.channels, [&](std::int64_t c0, auto n) TANDEM_INLINE {
      float sums[kChunk];
      for (std::int64_t c = 0; c < n; ++c) sums[c] = 0;
      for_each_window(p, ih, iw, [&](std::int32_t tap, std::int64_t oh, std::int64_t ow) TANDEM_INLINE {
        share(tap, oh, ow, (oh * p.s.output.w + ow) * p.s.channels + c0, n, sums);
      });
      E* to = dx + iw * p.s.channels + c0;
      for (std::int64_t c = 0; c < n; ++c) to[c] = sums[c];
    });
}

template <class E, class I>
TANDEM_CLONES void max_gradient_row(const PoolPlan& p, std::int64_t ih, const E* g, const I* index, E* dx) {
  gradient_row(
      p, ih, dx,
      [&](std::int32_t tap, std::int64_t, std::int64_t, std::int64_t at, auto n, float* sums) TANDEM_INLINE {
        for (std::int64_t c = 0; c < n; ++c) {
          const float gradient = g[at + c];  // read in any case, so that the next line is a select, no branch
          sums[c] += index[at + c] == tap ? gradient : 0.0f;
        }
      });
}

template <class E> TANDEM_CLONES void avg_row(const AvgPlan& p, std::int64_t oh, const E* x, E* y) {
  for (std::int64_t ow = 0; ow < p.s.output.w; ++ow) {
    const float share = p.share(oh, ow);
    for_each_piece(p.s.channels, [&](std::int64_t c0, auto n) TANDEM_INLINE {
      float sums[kChunk];
      for (std::int64_t c = 0; c < n; ++c) sums[c] = 0;
      for_each_tap(p, oh, ow, [&](std::int32_t, std::int64_t pixel) TANDEM_INLINE {
        for (std::int64_t c = 0; c < n; ++c) sums[c] += x[pixel + c0 + c];
      });
      E* to = y + ow * p.s.channels + c0;
      for (std::int64_t c = 0; c < n; ++c) to[c] = sums[c] * share;
    });
  }
}

template <class E> TANDEM_CLONES void avg_gradient_row(const AvgPlan& p, std::int64_t ih, const E* g, E* dx) {
  gradient_row(p, ih, dx,
               [&](std::int32_t, std::int64_t oh, std::int64_t ow, std::int64_t at, auto n, float* sums)
                   TANDEM_INLINE {
                     const float share = p.share(oh, ow);
                     for (std::int64_t c = 0; c < n; ++c) sums[c] += g[at + c] * share;
                   });
}

template <class E, class I> KernelPtr make_max(PoolPlan plan) {
  return make_kernel([plan = std::move(plan)](const Launch& l) {
    plan.for_each_row(plan.s.output.h, [&](std::int64_t oh, std::int64_t image, std::int64_t outputs) {
      const std::int64_t at = outputs + oh * plan.s.output.w * plan.s.channels;
      max_row(plan, oh, input<E>(l, 0) + image, output<E>(l, 0) + at, output<I>(l, 1) + at);
    });
  });
}

template <class E, class I> KernelPtr make_max_gradient(PoolPlan plan) {
  return make_kernel([plan = std::move(plan)](const Launch& l) {
    plan.for_each_row(plan.s.image.h, [&](std::int64_t ih, std::int64_t image, std::int64_t outputs) {
      max_gradient_row(plan, ih, input<E>(l, 0) + outputs, input<I>(l, 1) + outputs,
                       output<E>(l, 0) + image + ih * plan.s.image.w * plan.s.channels);
    });
  });
}

}  // namespace

KernelPtr make_max_pool2d_cpu(const KernelSpec& spec) {
  return make_for<float, BFloat16>(spec.inputs[0].dtype, [&](auto zero) {
    PoolPlan plan(spec, spec.inputs[0], spec.outputs[0]);
    return spec.outputs[1].dtype == DType::u8 ? make_max<decltype(zero), std::uint8_t>(std::move(plan))
                                              : make_max<decltype(zero), std::int32_t>(std::move(plan));
  });
}

KernelPtr make_max_pool2d_grad_cpu(const KernelSpec& spec) {
  return make_for<float, BFloat16>(spec.inputs[0].dtype, [&](auto zero) {
    PoolPlan plan(spec, spec.outputs[0], spec.inputs[0]);
    return spec.inputs[1].dtype == DType::u8
               ? make_max_gradient<decltype(zero), std::uint8_t>(std::move(plan))
               : make_max_gradient<decltype(zero), std::int32_t>(std::move(plan));
  });
}

KernelPtr make_avg_pool2d_cpu(const KernelSpec& spec) {
  return make_for<float, BFloat16>(spec.inputs[0].dtype, [&](auto zero) {
    using E = decltype(zero);
    return make_kernel([plan = AvgPlan(spec, spec.inputs[0], spec.outputs[0])](const Launch& l) {
      plan.for_each_row(plan.s.output.h, [&](std::int64_t oh, std::int64_t image, std::int64_t outputs) {
        avg_row(plan, oh, input<E>(l, 0) + image,
                output<E>(l, 0) + outputs + oh * plan.s.output.w * plan.s.channels);
      });
    });
  });
}

KernelPtr make_avg_pool2d_grad_cpu(const KernelSpec& spec) {
  return make_for<float, BFloat16>(spec.inputs[0].dtype, [&](auto zero) {
    using E = decltype(zero);
    return make_kernel([plan = AvgPlan(spec, spec.outputs[0], spec.inputs[0])](const Launch& l) {
      plan.for_each_row(plan.s.image.h, [&](std::int64_t ih, std::int64_t image, std::int64_t outputs) {
        avg_gradient_row(plan, ih, input<E>(l, 0) + outputs,
                         output<E>(l, 0) + image + ih * plan.s.image.w * plan.s.channels);
      });
    });
  });
}

}  // namespace tandem::engine
