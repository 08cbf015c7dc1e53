// Convolutions as plain loops on one thread. Sums are in double for all operand types and are rounded once.
#include <algorithm>
#include <array>

#include <tandem/core/base/clones.h>
#include <tandem/ops/conv.h>
#include <tandem/ops/reference/kernels.h>

namespace tandem::engine {
namespace {

// Rows of numbers, `stride` apart.
template <class T> struct Rows {
  T* first;
  std::int64_t stride;
  T* operator[](std::int64_t i) const { return first + i * stride; }
};

// Dot product with eight interleaved partial sums: a fixed order that compilers vectorize.
template <class T> [[gnu::always_inline]] inline double dot(std::int64_t n, const T* a, const T* b) {
  std::array<double, 8> lanes{};
  std::int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    for (std::int64_t j = 0; j < 8; ++j)
      lanes[j] += static_cast<double>(a[i + j]) * static_cast<double>(b[i + j]);
  for (; i < n; ++i) lanes[i % 8] += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return ((lanes[0] + lanes[4]) + (lanes[1] + lanes[5])) + ((lanes[2] + lanes[6]) + (lanes[3] + lanes[7]));
}

// *sums[i] += a[i] (n) · b (n), for each of `count` rows
template <class T>
[[gnu::always_inline]] inline void add_dots_of(std::int64_t count, std::int64_t n, Rows<const T> a,
                                               const T* b, Rows<double> sums) {
  for (std::int64_t i = 0; i < count; ++i) *sums[i] += dot(n, a[i], b);
}
TANDEM_CLONES void add_dots(std::int64_t count, std::int64_t n, Rows<const float> a, const float* b,
                            Rows<double> sums) {
  add_dots_of(count, n, a, b, sums);
}
TANDEM_CLONES void add_dots(std::int64_t count, std::int64_t n, Rows<const double> a, const double* b,
                            Rows<double> sums) {
  add_dots_of(count, n, a, b, sums);
}

// sums[i] (n) += *factors[i] · a[i] (n), for each of `count` rows. All rows of `a` or of `sums` can be one.
template <class T>
[[gnu::always_inline]] inline void add_scaled_of(std::int64_t count, std::int64_t n, Rows<const T> factors,
                                                 Rows<const T> a, Rows<double> sums) {
  for (std::int64_t i = 0; i < count; ++i) {
    const double factor = static_cast<double>(*factors[i]);
    const T* row = a[i];
    double* sum = sums[i];
#pragma GCC ivdep
    for (std::int64_t j = 0; j < n; ++j) sum[j] += factor * static_cast<double>(row[j]);
  }
}
TANDEM_CLONES void add_scaled(std::int64_t count, std::int64_t n, Rows<const float> factors,
                              Rows<const float> a, Rows<double> sums) {
  add_scaled_of(count, n, factors, a, sums);
}
TANDEM_CLONES void add_scaled(std::int64_t count, std::int64_t n, Rows<const double> factors,
                              Rows<const double> a, Rows<double> sums) {
  add_scaled_of(count, n, factors, a, sums);
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

// One tap of the window as it moves along one row of output pixels: `count` pixels from `w` on see pixels of
// image row `ih`, from `iw` on; the others see padding.
struct Tap {
  std::int64_t kh, kw, w, count, ih, iw;
};

// Calls f(tap) for the taps that row `h` of the output sees.
template <class F> void for_each_tap(const Conv2dSize& s, std::int64_t h, const F& f) {
  const Window& window = s.window;
  for (std::int64_t kh = 0; kh < window.kernel.h; ++kh) {
    const std::int64_t ih = h * window.stride.h - window.padding.h + kh * window.dilation.h;
    if (ih < 0 || ih >= s.image.h) continue;
    for (std::int64_t kw = 0; kw < window.kernel.w; ++kw) {
      const auto image_column = [&](std::int64_t w) {
        return w * window.stride.w - window.padding.w + kw * window.dilation.w;
      };
      std::int64_t begin = 0, end = s.output.w;
      while (begin < end && image_column(begin) < 0) ++begin;
      while (begin < end && image_column(end - 1) >= s.image.w) --end;
      if (begin < end) f(Tap{kh, kw, begin, end - begin, ih, image_column(begin)});
    }
  }
}

// The kernels below go through one row of output pixels at a time, and within it through the weights, so that
// a weight is read once per row. `sums` is in double.

// sums: (w,out) of a row; `bias` can be null.
template <class T>
void forward(const Conv2dSize& s, const T* image, const T* weights, const T* bias, T* output, double* sums) {
  const std::int64_t in = s.in / s.groups, out = s.out / s.groups, step = s.window.stride.w * s.in;
  for (std::int64_t n = 0; n < s.n; ++n)
    for (std::int64_t h = 0; h < s.output.h; ++h) {
      for (std::int64_t i = 0; i < s.output.w * s.out; ++i)
        sums[i] = bias ? static_cast<double>(bias[i % s.out]) : 0.0;
      for_each_tap(s, h, [&](const Tap& tap) {
        const T* pixels = image + image_at(s, n, tap.ih, tap.iw);
        for (std::int64_t o = 0; o < s.out; ++o)
          add_dots(tap.count, in, {pixels + o / out * in, step}, weights + weight_at(s, o, tap.kh, tap.kw),
                   {sums + tap.w * s.out + o, s.out});
      });
      std::copy(sums, sums + s.output.w * s.out, output + output_at(s, n, h, 0));
    }
}

// sums: (h,w,in) of an image.
template <class T>
void grad_input(const Conv2dSize& s, const T* grad_output, const T* weights, T* grad_image, double* sums) {
  const std::int64_t in = s.in / s.groups, out = s.out / s.groups, step = s.window.stride.w * s.in;
  const std::int64_t image = s.image.h * s.image.w * s.in;
  for (std::int64_t n = 0; n < s.n; ++n) {
    std::fill(sums, sums + image, 0.0);
    for (std::int64_t h = 0; h < s.output.h; ++h)
      for_each_tap(s, h, [&](const Tap& tap) {
        const T* gradients = grad_output + output_at(s, n, h, tap.w);
        double* pixels = sums + image_at(s, 0, tap.ih, tap.iw);
        for (std::int64_t o = 0; o < s.out; ++o)
          add_scaled(tap.count, in, {gradients + o, s.out}, {weights + weight_at(s, o, tap.kh, tap.kw), 0},
                     {pixels + o / out * in, step});
      });
    std::copy(sums, sums + image, grad_image + n * image);
  }
}

// sums: those of all weights, then of the bias; `grad_bias` can be null.
template <class T>
void grad_weight(const Conv2dSize& s, const T* image, const T* grad_output, T* grad_weights, T* grad_bias,
                 double* sums) {
  const std::int64_t in = s.in / s.groups, out = s.out / s.groups, step = s.window.stride.w * s.in;
  const std::int64_t weights = weight_at(s, s.out, 0, 0);
  const T one{1};
  std::fill(sums, sums + weights + s.out, 0.0);
  for (std::int64_t n = 0; n < s.n; ++n)
    for (std::int64_t h = 0; h < s.output.h; ++h) {
      const T* row = grad_output + output_at(s, n, h, 0);
      for_each_tap(s, h, [&](const Tap& tap) {
        const T* pixels = image + image_at(s, n, tap.ih, tap.iw);
        for (std::int64_t o = 0; o < s.out; ++o)
          add_scaled(tap.count, in, {row + tap.w * s.out + o, s.out}, {pixels + o / out * in, step},
                     {sums + weight_at(s, o, tap.kh, tap.kw), 0});
      });
      if (grad_bias) add_scaled(s.output.w, s.out, {&one, 0}, {row, s.out}, {sums + weights, 0});
    }
  std::copy(sums, sums + weights, grad_weights);
  if (grad_bias) std::copy(sums + weights, sums + weights + s.out, grad_bias);
}

enum class Direction : std::uint8_t { forward, grad_input, grad_weight };

template <Direction direction, class T> KernelPtr make(const KernelSpec& spec) {
  const Conv2dSize s = static_cast<const ConvolutionOp&>(spec.op).size(spec.inputs);
  std::int64_t sums = s.output.w * s.out;
  if (direction == Direction::grad_input) sums = s.image.h * s.image.w * s.in;
  if (direction == Direction::grad_weight) sums = weight_at(s, s.out, 0, 0) + s.out;
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
