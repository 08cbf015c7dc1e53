// Pooling as plain loops on one thread. Averages are summed in double and rounded once.
#include <algorithm>
#include <cmath>

#include <tandem/ops/pool.h>
#include <tandem/ops/reference/kernels.h>

namespace tandem::engine {
namespace {

// Calls f(tap, offset of the pixel in one image) for the window's taps that lie on the image, row by row.
template <class F> void for_each_tap(const Pool2dSize& s, std::int64_t oh, std::int64_t ow, const F& f) {
  for (std::int64_t ih = s.h.begin(oh); ih < s.h.end(oh); ++ih)
    for (std::int64_t iw = s.w.begin(ow); iw < s.w.end(ow); ++iw)
      if (ih >= 0 && ih < s.image.h && iw >= 0 && iw < s.image.w)
        f((ih - s.h.begin(oh)) * s.w.kernel + iw - s.w.begin(ow), (ih * s.image.w + iw) * s.channels);
}

// Calls f(element of the output, offset of its channel in the batch's images, oh, ow).
template <class F> void for_each_output(const Pool2dSize& s, const F& f) {
  std::int64_t o = 0;
  for (std::int64_t n = 0; n < s.n; ++n)
    for (std::int64_t oh = 0; oh < s.output.h; ++oh)
      for (std::int64_t ow = 0; ow < s.output.w; ++ow)
        for (std::int64_t c = 0; c < s.channels; ++c)
          f(o++, n * s.image.h * s.image.w * s.channels + c, oh, ow);
}

template <class T, class I> void max_pool(const Pool2dSize& s, const T* x, T* y, I* index) {
  for_each_output(s, [&](std::int64_t o, std::int64_t image, std::int64_t oh, std::int64_t ow) {
    bool first = true;
    for_each_tap(s, oh, ow, [&](std::int64_t tap, std::int64_t pixel) {
      const T value = x[image + pixel];
      if (!first && !(value > y[o]) && !std::isnan(value)) return;
      if (!first && std::isnan(y[o])) return;
      first = false;
      y[o] = value;
      index[o] = static_cast<I>(tap);
    });
  });
}

template <class T, class I>
void max_pool_grad(const Pool2dSize& s, const T* grad_output, const I* index, T* grad_image) {
  std::fill(grad_image, grad_image + s.n * s.image.h * s.image.w * s.channels, T{0});
  for_each_output(s, [&](std::int64_t o, std::int64_t image, std::int64_t oh, std::int64_t ow) {
    for_each_tap(s, oh, ow, [&](std::int64_t tap, std::int64_t pixel) {
      if (index[o] == tap) grad_image[image + pixel] += grad_output[o];
    });
  });
}

template <class T, class I> void max_pool_take(const Pool2dSize& s, const T* x, const I* index, T* y) {
  for_each_output(s, [&](std::int64_t o, std::int64_t image, std::int64_t oh, std::int64_t ow) {
    y[o] = 0;  // stays 0 if the index names no pixel
    for_each_tap(s, oh, ow, [&](std::int64_t tap, std::int64_t pixel) {
      if (index[o] == tap) y[o] = x[image + pixel];
    });
  });
}

template <class T> void avg_pool(const Pool2dSize& s, const T* x, T* y) {
  for_each_output(s, [&](std::int64_t o, std::int64_t image, std::int64_t oh, std::int64_t ow) {
    double sum = 0;
    for_each_tap(s, oh, ow,
                 [&](std::int64_t, std::int64_t pixel) { sum += static_cast<double>(x[image + pixel]); });
    y[o] = static_cast<T>(sum / s.divisor(oh, ow));
  });
}

// `sums` has the gradient of all images, in double.
template <class T>
void avg_pool_grad(const Pool2dSize& s, const T* grad_output, T* grad_image, double* sums) {
  const std::int64_t elements = s.n * s.image.h * s.image.w * s.channels;
  std::fill(sums, sums + elements, 0.0);
  for_each_output(s, [&](std::int64_t o, std::int64_t image, std::int64_t oh, std::int64_t ow) {
    const double share = static_cast<double>(grad_output[o]) / s.divisor(oh, ow);
    for_each_tap(s, oh, ow, [&](std::int64_t, std::int64_t pixel) { sums[image + pixel] += share; });
  });
  std::copy(sums, sums + elements, grad_image);
}

Pool2dSize size_of_pool(const KernelSpec& spec) {
  const auto& options = static_cast<const Pool2dOp&>(spec.op).options;
  const bool grad = spec.op.name().ends_with("_grad");
  return pool2d_size(options, grad ? spec.outputs[0] : spec.inputs[0],
                     grad ? spec.inputs[0] : spec.outputs[0]);
}

// Calls `make` with zeros of the element's and the index's types.
template <class F> KernelPtr for_dtypes(DType dtype, DType index, const F& make) {
  return make_for<float, double>(
      dtype, [&](auto x) { return index == DType::u8 ? make(x, std::uint8_t{}) : make(x, std::int32_t{}); });
}

}  // namespace

KernelPtr make_max_pool2d_reference(const KernelSpec& spec) {
  const Pool2dSize s = size_of_pool(spec);
  return for_dtypes(spec.inputs[0].dtype, spec.outputs[1].dtype, [=](auto x, auto index) {
    using T = decltype(x);
    using I = decltype(index);
    return make_kernel(
        [=](const Launch& l) { max_pool(s, input<T>(l, 0), output<T>(l, 0), output<I>(l, 1)); });
  });
}
KernelPtr make_max_pool2d_grad_reference(const KernelSpec& spec) {
  const Pool2dSize s = size_of_pool(spec);
  return for_dtypes(spec.inputs[0].dtype, spec.inputs[1].dtype, [=](auto x, auto index) {
    using T = decltype(x);
    using I = decltype(index);
    return make_kernel(
        [=](const Launch& l) { max_pool_grad(s, input<T>(l, 0), input<I>(l, 1), output<T>(l, 0)); });
  });
}
KernelPtr make_max_pool2d_take_reference(const KernelSpec& spec) {
  const Pool2dSize s = size_of_pool(spec);
  return for_dtypes(spec.inputs[0].dtype, spec.inputs[1].dtype, [=](auto x, auto index) {
    using T = decltype(x);
    using I = decltype(index);
    return make_kernel(
        [=](const Launch& l) { max_pool_take(s, input<T>(l, 0), input<I>(l, 1), output<T>(l, 0)); });
  });
}
KernelPtr make_avg_pool2d_reference(const KernelSpec& spec) {
  const Pool2dSize s = size_of_pool(spec);
  return make_for<float, double>(spec.inputs[0].dtype, [=](auto zero) {
    using T = decltype(zero);
    return make_kernel([=](const Launch& l) { avg_pool(s, input<T>(l, 0), output<T>(l, 0)); });
  });
}
KernelPtr make_avg_pool2d_grad_reference(const KernelSpec& spec) {
  const Pool2dSize s = size_of_pool(spec);
  const std::int64_t workspace = spec.outputs[0].elements() * static_cast<std::int64_t>(sizeof(double));
  return make_for<float, double>(spec.inputs[0].dtype, [=](auto zero) {
    using T = decltype(zero);
    return make_kernel(
        [=](const Launch& l) {
          avg_pool_grad(s, input<T>(l, 0), output<T>(l, 0), static_cast<double*>(l.workspace));
        },
        workspace);
  });
}

}  // namespace tandem::engine
