#include <tandem/ops/cpu/conv_dense.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include <tandem/core/base/memory.h>
#include <tandem/ops/cpu/conv_patches.h>
#include <tandem/ops/cpu/onednn.h>
#include <tandem/ops/cpu/parallel.h>
#include <tandem/ops/cpu/sum_rows.h>

namespace tandem::engine {
namespace {

// Converts between the weights (out, tap, in) and the map's matrix, which has a row per element (pixel,
// channel) of an output and a column per element of an image.
class DenseMap {
 public:
  DenseMap(const Conv2dSize& s, DType dtype, int threads)
      : in_(s.in),
        out_(s.out),
        pixels_(s.image.h * s.image.w),
        outputs_(s.output.h * s.output.w),
        taps_(s.window.kernel.h * s.window.kernel.w),
        tap_(static_cast<std::size_t>(outputs_ * pixels_), kNone),
        element_(size_of(dtype)),
        threads_(threads) {
    for (std::int64_t o = 0; o < outputs_; ++o)
      for (std::int64_t t = 0; t < taps_; ++t)
        if (const std::int64_t pixel = s.pixel_under(o, t); pixel >= 0)
          tap_[static_cast<std::size_t>(o * pixels_ + pixel)] = t;
  }

  std::int64_t rows() const { return outputs_ * out_; }
  std::int64_t columns() const { return pixels_ * in_; }
  std::int64_t bytes() const { return align_up(rows() * columns() * element_); }
  std::int64_t bias_bytes() const { return align_up(rows() * element_); }
  int threads() const { return threads_; }

  // Writes the matrix that the weights define.
  void expand(const std::byte* weights, std::byte* dense) const {
    const std::int64_t bytes = in_ * element_;
    parallel_parts(threads_, rows(), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row)
        for (std::int64_t pixel = 0; pixel < pixels_; ++pixel) {
          std::byte* const to = dense + (row * pixels_ + pixel) * bytes;
          const std::int64_t tap = tap_at(row / out_, pixel);
          if (tap == kNone)
            std::memset(to, 0, static_cast<std::size_t>(bytes));
          else
            std::memcpy(to, weights + (row % out_ * taps_ + tap) * bytes, static_cast<std::size_t>(bytes));
        }
    });
  }

  // Sums, for every weight, the elements of the matrix that it defines.
  void fold(const float* dense, float* weights) const {
    parallel_parts(threads_, out_, [&](std::int64_t begin, std::int64_t end) {
      std::fill(weights + begin * taps_ * in_, weights + end * taps_ * in_, 0.0F);
      for (std::int64_t channel = begin; channel < end; ++channel)
        for (std::int64_t output = 0; output < outputs_; ++output)
          for (std::int64_t pixel = 0; pixel < pixels_; ++pixel) {
            const std::int64_t tap = tap_at(output, pixel);
            if (tap == kNone) continue;
            const float* from = dense + (output * out_ + channel) * columns() + pixel * in_;
            float* to = weights + (channel * taps_ + tap) * in_;
            for (std::int64_t i = 0; i < in_; ++i) to[i] += from[i];
          }
    });
  }

  // Repeat the bias for each output pixel; sum outputs over samples and pixels.
  void expand_bias(const std::byte* bias, std::byte* dense) const {
    const std::int64_t bytes = out_ * element_;
    for (std::int64_t output = 0; output < outputs_; ++output)
      std::copy_n(bias, bytes, dense + output * bytes);
  }
  void fold_bias(const float* outputs, std::int64_t samples, float* bias) const {
    sum_rows(outputs, samples * outputs_, out_, bias, threads_);
  }

 private:
  static constexpr std::int64_t kNone = -1;
  std::int64_t tap_at(std::int64_t output, std::int64_t pixel) const {
    return tap_[static_cast<std::size_t>(output * pixels_ + pixel)];
  }

  std::int64_t in_, out_, pixels_, outputs_, taps_;
  std::vector<std::int64_t> tap_;  // per output and pixel: the tap of the kernel that connects them
  std::int64_t element_;           // bytes
  int threads_;
};

// The workspace holds the map, then `extra` bytes, then the product's workspace.
class DenseConv : public Kernel {
 public:
  DenseConv(const DenseMap& map, onednn::PrimitivePtr product, std::int64_t extra)
      : map_(map), product_(std::move(product)), extra_(extra) {}
  std::int64_t workspace() const override { return map_.bytes() + extra_ + product_->workspace(); }

 protected:
  const DenseMap& map() const { return map_; }
  static std::byte* dense(const Launch& l) { return static_cast<std::byte*>(l.workspace); }
  std::byte* extra(const Launch& l) const { return dense(l) + map_.bytes(); }
  void multiply(const Launch& l, std::initializer_list<const void*> operands) const {
    product_->compute(operands, extra(l) + extra_);
  }

 private:
  DenseMap map_;
  onednn::PrimitivePtr product_;
  std::int64_t extra_;
};

// outputs (N, rows) = images (N, columns) · mapᵀ + bias
class Forward final : public DenseConv {
 public:
  Forward(const DenseMap& map, onednn::PrimitivePtr product, bool has_bias)
      : DenseConv(map, std::move(product), has_bias ? map.bias_bytes() : 0), has_bias_(has_bias) {}
  void run(const Launch& l) const override {
    map().expand(input<std::byte>(l, 1), dense(l));
    if (!has_bias_) return multiply(l, {l.in[0], dense(l), l.out[0]});
    map().expand_bias(input<std::byte>(l, 2), extra(l));
    multiply(l, {l.in[0], dense(l), extra(l), l.out[0]});
  }

 private:
  bool has_bias_;
};

// images' gradient (N, columns) = outputs' gradient · map. A product with a bf16 result would take a
// scratchpad as large as an f32 result for each thread, so `narrowed` f32 results are rounded here.
class GradInput final : public DenseConv {
 public:
  GradInput(const DenseMap& map, onednn::PrimitivePtr product, std::int64_t narrowed)
      : DenseConv(map, std::move(product), align_up(narrowed * size_of(DType::f32))), narrowed_(narrowed) {}
  void run(const Launch& l) const override {
    map().expand(input<std::byte>(l, 1), dense(l));
    multiply(l, {l.in[0], dense(l), narrowed_ > 0 ? extra(l) : l.out[0]});
    const auto* const wide = reinterpret_cast<const float*>(extra(l));
    parallel_parts(map().threads(), narrowed_, [&](std::int64_t begin, std::int64_t end) {
      floats_to_bf16(wide + begin, output<std::uint16_t>(l, 0) + begin, end - begin);
    });
  }

 private:
  std::int64_t narrowed_;
};

// map's gradient = outputs' gradientᵀ · images
class GradWeight final : public DenseConv {
 public:
  GradWeight(const DenseMap& map, onednn::PrimitivePtr product, std::int64_t samples, bool has_bias)
      : DenseConv(map, std::move(product), 0), samples_(samples), has_bias_(has_bias) {}
  void run(const Launch& l) const override {
    multiply(l, {l.in[1], l.in[0], dense(l)});
    map().fold(reinterpret_cast<const float*>(dense(l)), output<float>(l, 0));
    if (has_bias_) map().fold_bias(input<float>(l, 1), samples_, output<float>(l, 1));
  }

 private:
  std::int64_t samples_;
  bool has_bias_;
};

}  // namespace

bool dense_conv_is_faster(const Conv2dSize& s, DType dtype) {
  const std::int64_t pixels = s.image.h * s.image.w, taps = s.window.kernel.h * s.window.kernel.w;
  const bool many = dtype == DType::bf16 ? s.n >= 96 && s.n % 32 == 0 : s.n >= 32;
  return s.groups == 1 && 2 * pixels < taps && many;
}

KernelPtr make_dense_conv2d(const KernelSpec& spec, const Conv2dSize& s) {
  const DType dtype = spec.inputs[0].dtype;
  const DenseMap map(s, dtype, spec.threads);
  const bool has_bias = spec.inputs.size() == 3;
  const onednn::Operand bias = row_major(dtype, 1, map.rows());
  auto product =
      onednn::matmul(row_major(dtype, s.n, map.columns()), transposed(dtype, map.rows(), map.columns()),
                     has_bias ? &bias : nullptr, row_major(dtype, s.n, map.rows()), {spec.threads});
  return product ? std::make_unique<Forward>(map, std::move(product), has_bias) : nullptr;
}

KernelPtr make_dense_conv2d_grad_input(const KernelSpec& spec, const Conv2dSize& s) {
  const DType dtype = spec.inputs[0].dtype;
  const DenseMap map(s, dtype, spec.threads);
  auto product =
      onednn::matmul(row_major(dtype, s.n, map.rows()), row_major(dtype, map.rows(), map.columns()), nullptr,
                     row_major(DType::f32, s.n, map.columns()), {spec.threads});
  const std::int64_t narrowed = dtype == DType::f32 ? 0 : s.n * map.columns();
  return product ? std::make_unique<GradInput>(map, std::move(product), narrowed) : nullptr;
}

KernelPtr make_dense_conv2d_grad_weight(const KernelSpec& spec, const Conv2dSize& s) {
  if (spec.inputs[0].dtype != DType::f32) return nullptr;
  const DenseMap map(s, DType::f32, spec.threads);
  auto product =
      onednn::matmul(transposed(DType::f32, s.n, map.rows()), row_major(DType::f32, s.n, map.columns()),
                     nullptr, row_major(DType::f32, map.rows(), map.columns()), {spec.threads});
  return product ? std::make_unique<GradWeight>(map, std::move(product), s.n, spec.outputs.size() == 2)
                 : nullptr;
}

}  // namespace tandem::engine
