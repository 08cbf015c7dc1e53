// Convolutions as plain loops on one thread. Sums are in double for all operand types and are rounded once.
#include <algorithm>
#include <array>

#include <tandem/core/base/clones.h>
#include <tandem/ops/conv.h>
#include <tandem/ops/reference/kernels.h>

namespace tandem::engine {
namespace {

// Dot product with eight interleaved partial sums: a fixed order that compilers vectorize.
template <class T> double dot_lanes(std::int64_t n, const T* a, const T* b) {
  std::array<double, 8> lanes{};
  std::int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    for (std::int64_t j = 0; j < 8; ++j)
      lanes[j] += static_cast<double>(a[i + j]) * static_cast<double>(b[i + j]);
  for (; i < n; ++i) lanes[i % 8] += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return ((lanes[0] + lanes[4]) + (lanes[1] + lanes[5])) + ((lanes[2] + lanes[6]) + (lanes[3] + lanes[7]));
}
TANDEM_CLONES double dot(std::int64_t n, const float* a, const float* b) { return dot_lanes(n, a, b); }
TANDEM_CLONES double dot(std::int64_t n, const double* a, const double* b) { return dot_lanes(n, a, b); }

// sums (n) += factor · a (n)
TANDEM_CLONES void add_scaled(std::int64_t n, double factor, const float* a, double* sums) {
  for (std::int64_t i = 0; i < n; ++i) sums[i] += factor * static_cast<double>(a[i]);
}
TANDEM_CLONES void add_scaled(std::int64_t n, double factor, const double* a, double* sums) {
  for (std::int64_t i = 0; i < n; ++i) sums[i] += factor * a[i];
}

// Returns the image pixel under tap `tap` of output pixel `output`, along one axis; −1 in the padding.
std::int64_t source(std::int64_t output, std::int64_t tap, std::int64_t extent, std::int64_t stride,
                    std::int64_t padding, std::int64_t dilation) {
  const std::int64_t i = output * stride - padding + tap * dilation;
  return i >= 0 && i < extent ? i : -1;
}
std::int64_t source_row(const Conv2dSize& s, std::int64_t output, std::int64_t tap) {
  return source(output, tap, s.image.h, s.window.stride.h, s.window.padding.h, s.window.dilation.h);
}
std::int64_t source_column(const Conv2dSize& s, std::int64_t output, std::int64_t tap) {
  return source(output, tap, s.image.w, s.window.stride.w, s.window.padding.w, s.window.dilation.w);
}

// Return the offset of a pixel's channels, and of the input channels of one tap of one output channel.
std::int64_t image_at(const Conv2dSize& s, std::int64_t n, std::int64_t h, std::int64_t w) {
  return ((n * s.image.h + h) * s.image.w + w) * s.in;
}
std::int64_t output_at(const Conv2dSize& s, std::int64_t n, std::int64_t h, std::int64_t w) {
  return ((n * s.output.h + h) * s.output.w + w) * s.out;
}
std::int64_t weight_at(const Conv2dSize& s, std::int64_t o, std::int64_t kh, std::int64_t kw) {
  return ((o * s.window.kernel.h + kh) * s.window.kernel.w + kw) * (s.in / s.groups);
}

template <class F> void for_each_output(const Conv2dSize& s, const F& f) {
  for (std::int64_t n = 0; n < s.n; ++n)
    for (std::int64_t h = 0; h < s.output.h; ++h)
      for (std::int64_t w = 0; w < s.output.w; ++w) f(n, h, w);
}
template <class F> void for_each_tap(const Conv2dSize& s, const F& f) {
  for (std::int64_t kh = 0; kh < s.window.kernel.h; ++kh)
    for (std::int64_t kw = 0; kw < s.window.kernel.w; ++kw) f(kh, kw);
}

// `sums` (out) is in double; `bias` can be null.
template <class T>
void forward(const Conv2dSize& s, const T* image, const T* weights, const T* bias, T* output, double* sums) {
  const std::int64_t in = s.in / s.groups, out = s.out / s.groups;
  for_each_output(s, [&](std::int64_t n, std::int64_t h, std::int64_t w) {
    for (std::int64_t o = 0; o < s.out; ++o) sums[o] = bias ? static_cast<double>(bias[o]) : 0.0;
    for_each_tap(s, [&](std::int64_t kh, std::int64_t kw) {
      const std::int64_t ih = source_row(s, h, kh), iw = source_column(s, w, kw);
      if (ih < 0 || iw < 0) return;
      const T* pixel = image + image_at(s, n, ih, iw);
      for (std::int64_t o = 0; o < s.out; ++o)
        sums[o] += dot(in, pixel + o / out * in, weights + weight_at(s, o, kh, kw));
    });
    std::copy(sums, sums + s.out, output + output_at(s, n, h, w));
  });
}

// Computes the gradient of one whole image at a time, in `sums` (h,w,in).
template <class T>
void grad_input(const Conv2dSize& s, const T* grad_output, const T* weights, T* grad_image, double* sums) {
  const std::int64_t in = s.in / s.groups, out = s.out / s.groups, pixels = s.image.h * s.image.w * s.in;
  const auto finish = [&](std::int64_t n) {
    std::copy(sums, sums + pixels, grad_image + n * pixels);
    std::fill(sums, sums + pixels, 0.0);
  };
  std::fill(sums, sums + pixels, 0.0);
  for_each_output(s, [&](std::int64_t n, std::int64_t h, std::int64_t w) {
    const T* gradient = grad_output + output_at(s, n, h, w);
    for_each_tap(s, [&](std::int64_t kh, std::int64_t kw) {
      const std::int64_t ih = source_row(s, h, kh), iw = source_column(s, w, kw);
      if (ih < 0 || iw < 0) return;
      double* pixel = sums + image_at(s, 0, ih, iw);
      for (std::int64_t o = 0; o < s.out; ++o)
        add_scaled(in, static_cast<double>(gradient[o]), weights + weight_at(s, o, kh, kw),
                   pixel + o / out * in);
    });
    if (h == s.output.h - 1 && w == s.output.w - 1) finish(n);
  });
}

// Computes one tap at a time, in `sums` (out, in/groups). `grad_bias` can be null.
template <class T>
void grad_weight(const Conv2dSize& s, const T* image, const T* grad_output, T* grad_weights, T* grad_bias,
                 double* sums) {
  const std::int64_t in = s.in / s.groups, out = s.out / s.groups;
  for_each_tap(s, [&](std::int64_t kh, std::int64_t kw) {
    std::fill(sums, sums + s.out * in, 0.0);
    for_each_output(s, [&](std::int64_t n, std::int64_t h, std::int64_t w) {
      const std::int64_t ih = source_row(s, h, kh), iw = source_column(s, w, kw);
      if (ih < 0 || iw < 0) return;
      const T* gradient = grad_output + output_at(s, n, h, w);
      const T* pixel = image + image_at(s, n, ih, iw);
      for (std::int64_t o = 0; o < s.out; ++o)
        add_scaled(in, static_cast<double>(gradient[o]), pixel + o / out * in, sums + o * in);
    });
    for (std::int64_t o = 0; o < s.out; ++o)
      std::copy(sums + o * in, sums + (o + 1) * in, grad_weights + weight_at(s, o, kh, kw));
  });
  if (!grad_bias) return;
  std::fill(sums, sums + s.out, 0.0);
  for_each_output(s, [&](std::int64_t n, std::int64_t h, std::int64_t w) {
    add_scaled(s.out, 1.0, grad_output + output_at(s, n, h, w), sums);
  });
  std::copy(sums, sums + s.out, grad_bias);
}

enum class Direction : std::uint8_t { forward, grad_input, grad_weight };

template <Direction direction, class T> KernelPtr make(const KernelSpec& spec) {
  const Conv2dSize s = static_cast<const ConvolutionOp&>(spec.op).size(spec.inputs);
  std::int64_t sums = s.out;
  if (direction == Direction::grad_input) sums = s.image.h * s.image.w * s.in;
  if (direction == Direction::grad_weight) sums = s.out * (s.in / s.groups);
  const bool bias = spec.inputs.size() == 3 || spec.outputs.size() == 2;
  return make_kernel(
      [=](const Launch& l) {
        const T *a = input<T>(l, 0), *b = input<T>(l, 1);
        T* out = output<T>(l, 0);
        auto* scratch = static_cast<double*>(l.workspace);
        if constexpr (direction == Direction::forward)
          forward(s, a, b, bias ? input<T>(l, 2) : nullptr, out, scratch);
        else if constexpr (direction == Direction::grad_input)
          grad_input(s, a, b, out, scratch);
        else
          grad_weight(s, a, b, out, bias ? output<T>(l, 1) : nullptr, scratch);
      },
      sums * static_cast<std::int64_t>(sizeof(double)));
}

template <Direction direction> KernelPtr make_for_dtype(const KernelSpec& spec) {
  return make_for<float, double>(spec.inputs[0].dtype,
                                 [&](auto zero) { return make<direction, decltype(zero)>(spec); });
}

}  // namespace

KernelPtr make_conv2d_reference(const KernelSpec& spec) { return make_for_dtype<Direction::forward>(spec); }
KernelPtr make_conv2d_grad_input_reference(const KernelSpec& spec) {
  return make_for_dtype<Direction::grad_input>(spec);
}
KernelPtr make_conv2d_grad_weight_reference(const KernelSpec& spec) {
  return make_for_dtype<Direction::grad_weight>(spec);
}

}  // namespace tandem::engine
