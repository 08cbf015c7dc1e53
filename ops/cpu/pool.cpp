// Pooling in f32: rows of the output, or of the image for gradients, shared out among the team. Every element is
// made by one thread in one order, so the result is the same for every team.
#include <algorithm>

#include <tandem/ops/cpu/clones.h>
#include <tandem/ops/cpu/kernels.h>
#include <tandem/ops/cpu/parallel.h>
#include <tandem/ops/pool.h>

namespace tandem {
namespace {

constexpr std::int64_t kChunk = 64;  // channels kept in registers

// A half-open range of taps, or of positions.
struct Range {
  std::int64_t begin, end;
};

// The taps of the window at `position` that lie on the image, along one axis.
[[gnu::always_inline]] inline Range taps_at(std::int64_t position, std::int64_t extent, std::int64_t kernel, std::int64_t stride,
                                            std::int64_t padding) {
  const std::int64_t origin = position * stride - padding;
  return {std::max<std::int64_t>(0, -origin), std::min(kernel, extent - origin)};
}

// The positions whose window covers `pixel`, along one axis.
[[gnu::always_inline]] inline Range positions_over(std::int64_t pixel, std::int64_t positions, std::int64_t kernel, std::int64_t stride,
                                                   std::int64_t padding) {
  const std::int64_t last = pixel + padding, first = last - kernel + 1;
  return {first > 0 ? (first + stride - 1) / stride : 0, std::min(last / stride + 1, positions)};
}

// Calls f(tap, pixel's offset in the image) for the taps of output pixel (oh,ow).
template <class F>
[[gnu::always_inline]] inline void for_each_tap(const Pool2dSize& s, std::int64_t oh, std::int64_t ow, const F& f) {
  const Window& w = s.window;
  const Range rows = taps_at(oh, s.image.h, w.kernel.h, w.stride.h, w.padding.h);
  const Range columns = taps_at(ow, s.image.w, w.kernel.w, w.stride.w, w.padding.w);
  for (std::int64_t kh = rows.begin; kh < rows.end; ++kh)
    for (std::int64_t kw = columns.begin; kw < columns.end; ++kw)
      f(kh * w.kernel.w + kw,
        ((oh * w.stride.h - w.padding.h + kh) * s.image.w + ow * w.stride.w - w.padding.w + kw) * s.channels);
}

// Calls f(tap, oh, ow) for the output pixels whose window covers image pixel (ih,iw).
template <class F>
[[gnu::always_inline]] inline void for_each_window(const Pool2dSize& s, std::int64_t ih, std::int64_t iw, const F& f) {
  const Window& w = s.window;
  const Range rows = positions_over(ih, s.output.h, w.kernel.h, w.stride.h, w.padding.h);
  const Range columns = positions_over(iw, s.output.w, w.kernel.w, w.stride.w, w.padding.w);
  for (std::int64_t oh = rows.begin; oh < rows.end; ++oh)
    for (std::int64_t ow = columns.begin; ow < columns.end; ++ow)
      f((ih + w.padding.h - oh * w.stride.h) * w.kernel.w + iw + w.padding.w - ow * w.stride.w, oh, ow);
}

// One row of the output from one image.
template <class I>
[[gnu::always_inline]] inline void max_row(const Pool2dSize& s, std::int64_t oh, const float* x, float* y, I* index) {
  for (std::int64_t ow = 0; ow < s.output.w; ++ow)
    for (std::int64_t c0 = 0; c0 < s.channels; c0 += kChunk) {
      const std::int64_t n = std::min(kChunk, s.channels - c0);
      float best[kChunk];
      std::int32_t taps[kChunk];
      bool first = true;
      for_each_tap(s, oh, ow, [&](std::int64_t tap, std::int64_t pixel) {
        const float* p = x + pixel + c0;
        if (first) {
          std::copy_n(p, n, best);
          std::fill_n(taps, n, static_cast<std::int32_t>(tap));
          first = false;
          return;
        }
        for (std::int64_t c = 0; c < n; ++c) {
          const bool larger = p[c] > best[c] || (p[c] != p[c] && best[c] == best[c]);
          best[c] = larger ? p[c] : best[c];
          taps[c] = larger ? static_cast<std::int32_t>(tap) : taps[c];
        }
      });
      std::copy_n(best, n, y + ow * s.channels + c0);
      for (std::int64_t c = 0; c < n; ++c) index[ow * s.channels + c0 + c] = static_cast<I>(taps[c]);
    }
}

// One row of the gradient of one image.
template <class I>
[[gnu::always_inline]] inline void max_grad_row(const Pool2dSize& s, std::int64_t ih, const float* g, const I* index, float* dx) {
  for (std::int64_t iw = 0; iw < s.image.w; ++iw)
    for (std::int64_t c0 = 0; c0 < s.channels; c0 += kChunk) {
      const std::int64_t n = std::min(kChunk, s.channels - c0);
      float sums[kChunk] = {};
      for_each_window(s, ih, iw, [&](std::int64_t tap, std::int64_t oh, std::int64_t ow) {
        const std::int64_t at = (oh * s.output.w + ow) * s.channels + c0;
        for (std::int64_t c = 0; c < n; ++c) sums[c] += static_cast<std::int64_t>(index[at + c]) == tap ? g[at + c] : 0.0f;
      });
      std::copy_n(sums, n, dx + iw * s.channels + c0);
    }
}

TANDEM_CLONES void max_row_u8(const Pool2dSize& s, std::int64_t oh, const float* x, float* y, std::uint8_t* index) { max_row(s, oh, x, y, index); }
TANDEM_CLONES void max_row_i32(const Pool2dSize& s, std::int64_t oh, const float* x, float* y, std::int32_t* index) { max_row(s, oh, x, y, index); }
TANDEM_CLONES void max_grad_row_u8(const Pool2dSize& s, std::int64_t ih, const float* g, const std::uint8_t* index, float* dx) {
  max_grad_row(s, ih, g, index, dx);
}
TANDEM_CLONES void max_grad_row_i32(const Pool2dSize& s, std::int64_t ih, const float* g, const std::int32_t* index, float* dx) {
  max_grad_row(s, ih, g, index, dx);
}

TANDEM_CLONES void avg_row(const Pool2dSize& s, std::int64_t oh, const float* x, float* y) {
  for (std::int64_t ow = 0; ow < s.output.w; ++ow) {
    const float share = static_cast<float>(1 / s.divisor(oh, ow));
    for (std::int64_t c0 = 0; c0 < s.channels; c0 += kChunk) {
      const std::int64_t n = std::min(kChunk, s.channels - c0);
      float sums[kChunk] = {};
      for_each_tap(s, oh, ow, [&](std::int64_t, std::int64_t pixel) {
        for (std::int64_t c = 0; c < n; ++c) sums[c] += x[pixel + c0 + c];
      });
      for (std::int64_t c = 0; c < n; ++c) y[ow * s.channels + c0 + c] = sums[c] * share;
    }
  }
}

TANDEM_CLONES void avg_grad_row(const Pool2dSize& s, std::int64_t ih, const float* g, float* dx) {
  for (std::int64_t iw = 0; iw < s.image.w; ++iw)
    for (std::int64_t c0 = 0; c0 < s.channels; c0 += kChunk) {
      const std::int64_t n = std::min(kChunk, s.channels - c0);
      float sums[kChunk] = {};
      for_each_window(s, ih, iw, [&](std::int64_t, std::int64_t oh, std::int64_t ow) {
        const float share = static_cast<float>(1 / s.divisor(oh, ow));
        const float* p = g + (oh * s.output.w + ow) * s.channels + c0;
        for (std::int64_t c = 0; c < n; ++c) sums[c] += p[c] * share;
      });
      std::copy_n(sums, n, dx + iw * s.channels + c0);
    }
}

// Calls f(row, element of the image where its batch entry starts, of the output) for all rows of images or outputs.
template <class F> void for_each_row(const Pool2dSize& s, int threads, std::int64_t rows_of_one, const F& f) {
  parallel_parts(threads, s.n * rows_of_one, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      f(i % rows_of_one, i / rows_of_one * s.image.h * s.image.w * s.channels, i / rows_of_one * s.output.h * s.output.w * s.channels);
  });
}

template <class I, class Row> KernelPtr make_max(const Pool2dSize& s, int threads, Row row) {
  return make_kernel([=](const Launch& l) {
    for_each_row(s, threads, s.output.h, [&](std::int64_t oh, std::int64_t image, std::int64_t output) {
      const std::int64_t at = output + oh * s.output.w * s.channels;
      row(s, oh, static_cast<const float*>(l.in[0]) + image, static_cast<float*>(l.out[0]) + at, static_cast<I*>(l.out[1]) + at);
    });
  });
}
template <class I, class Row> KernelPtr make_max_grad(const Pool2dSize& s, int threads, Row row) {
  return make_kernel([=](const Launch& l) {
    for_each_row(s, threads, s.image.h, [&](std::int64_t ih, std::int64_t image, std::int64_t output) {
      row(s, ih, static_cast<const float*>(l.in[0]) + output, static_cast<const I*>(l.in[1]) + output,
          static_cast<float*>(l.out[0]) + image + ih * s.image.w * s.channels);
    });
  });
}

const Pool2dOptions& options_of(const KernelSpec& spec) { return static_cast<const Pool2dOp&>(spec.op).options; }
int threads_of(const KernelSpec& spec) { return useful_threads(spec.threads, spec.inputs[0].bytes() + spec.outputs[0].bytes()); }

}  // namespace

KernelPtr make_max_pool2d_cpu(const KernelSpec& spec) {
  if (spec.inputs[0].dtype != DType::f32) return nullptr;
  const Pool2dSize s = pool2d_size(options_of(spec), spec.inputs[0], spec.outputs[0]);
  if (spec.outputs[1].dtype == DType::u8) return make_max<std::uint8_t>(s, threads_of(spec), max_row_u8);
  return make_max<std::int32_t>(s, threads_of(spec), max_row_i32);
}

KernelPtr make_max_pool2d_grad_cpu(const KernelSpec& spec) {
  if (spec.inputs[0].dtype != DType::f32) return nullptr;
  const Pool2dSize s = pool2d_size(options_of(spec), spec.outputs[0], spec.inputs[0]);
  if (spec.inputs[1].dtype == DType::u8) return make_max_grad<std::uint8_t>(s, threads_of(spec), max_grad_row_u8);
  return make_max_grad<std::int32_t>(s, threads_of(spec), max_grad_row_i32);
}

KernelPtr make_avg_pool2d_cpu(const KernelSpec& spec) {
  if (spec.inputs[0].dtype != DType::f32) return nullptr;
  return make_kernel([s = pool2d_size(options_of(spec), spec.inputs[0], spec.outputs[0]), threads = threads_of(spec)](const Launch& l) {
    for_each_row(s, threads, s.output.h, [&](std::int64_t oh, std::int64_t image, std::int64_t output) {
      avg_row(s, oh, static_cast<const float*>(l.in[0]) + image, static_cast<float*>(l.out[0]) + output + oh * s.output.w * s.channels);
    });
  });
}

KernelPtr make_avg_pool2d_grad_cpu(const KernelSpec& spec) {
  if (spec.inputs[0].dtype != DType::f32) return nullptr;
  return make_kernel([s = pool2d_size(options_of(spec), spec.outputs[0], spec.inputs[0]), threads = threads_of(spec)](const Launch& l) {
    for_each_row(s, threads, s.image.h, [&](std::int64_t ih, std::int64_t image, std::int64_t output) {
      avg_grad_row(s, ih, static_cast<const float*>(l.in[0]) + output, static_cast<float*>(l.out[0]) + image + ih * s.image.w * s.channels);
    });
  });
}

}  // namespace tandem
