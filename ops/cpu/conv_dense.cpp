#include <tandem/ops/cpu/conv_dense.h>

#include <algorithm>
#include <vector>

#include <tandem/core/base/memory.h>
#include <tandem/ops/cpu/onednn.h>
#include <tandem/ops/cpu/parallel.h>
#include <tandem/ops/cpu/sum_rows.h>

namespace tandem::engine {
namespace {

// Converts between the weights (out, tap, in) and the map's matrix, which has a row per element (pixel,
// channel) of an output and a column per element of an image.
class DenseMap {
 public:
  DenseMap(const Conv2dSize& s, int threads)
      : in_(s.in),
        out_(s.out),
        pixels_(s.image.h * s.image.w),
        outputs_(s.output.h * s.output.w),
        taps_(s.window.kernel.h * s.window.kernel.w),
        tap_(static_cast<std::size_t>(outputs_ * pixels_), kNone),
        threads_(threads) {
    for (std::int64_t o = 0; o < outputs_; ++o)
      for (std::int64_t t = 0; t < taps_; ++t)
        if (const std::int64_t pixel = s.pixel_under(o, t); pixel >= 0)
          tap_[static_cast<std::size_t>(o * pixels_ + pixel)] = t;
  }

  std::int64_t rows() const { return outputs_ * out_; }
  std::int64_t columns() const { return pixels_ * in_; }
  std::int64_t bytes() const { return align_up(rows() * columns() * std::int64_t{sizeof(float)}); }

  // Writes the matrix that the weights define.
  void expand(const float* weights, float* dense) const {
    parallel_parts(threads_, rows(), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row)
        for (std::int64_t pixel = 0; pixel < pixels_; ++pixel) {
          float* to = dense + row * columns() + pixel * in_;
          const std::int64_t tap = tap_at(row / out_, pixel);
          if (tap == kNone)
            std::fill_n(to, in_, 0.0F);
          else
            std::copy_n(weights + (row % out_ * taps_ + tap) * in_, in_, to);
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
  void expand_bias(const float* bias, float* dense) const {
    for (std::int64_t output = 0; output < outputs_; ++output) std::copy_n(bias, out_, dense + output * out_);
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
  int threads_;
};

onednn::Operand row_major(std::int64_t rows, std::int64_t columns) {
  return {DType::f32, {rows, columns}, {columns, 1}};
}
// A matrix that lies in memory as rows × columns, read as columns × rows.
onednn::Operand transposed(std::int64_t rows, std::int64_t columns) {
  return {DType::f32, {columns, rows}, {1, columns}};
}

// The workspace holds the map, then a bias for each element of an output, then the product's workspace.
class DenseConv : public Kernel {
 public:
  DenseConv(const DenseMap& map, onednn::PrimitivePtr product, bool has_bias)
      : map_(map),
        product_(std::move(product)),
        bias_bytes_(has_bias ? align_up(map.rows() * std::int64_t{sizeof(float)}) : 0) {}
  std::int64_t workspace() const override { return map_.bytes() + bias_bytes_ + product_->workspace(); }

 protected:
  bool has_bias() const { return bias_bytes_ > 0; }
  const DenseMap& map() const { return map_; }
  static float* dense(const Launch& l) { return static_cast<float*>(l.workspace); }
  float* dense_bias(const Launch& l) const {
    return reinterpret_cast<float*>(static_cast<std::byte*>(l.workspace) + map_.bytes());
  }
  void multiply(const Launch& l, std::initializer_list<const void*> operands) const {
    product_->compute(operands, static_cast<std::byte*>(l.workspace) + map_.bytes() + bias_bytes_);
  }

 private:
  DenseMap map_;
  onednn::PrimitivePtr product_;
  std::int64_t bias_bytes_;
};

// outputs (N, rows) = images (N, columns) · mapᵀ + bias, or images' gradient = outputs' gradient · map
class ByMap final : public DenseConv {
 public:
  using DenseConv::DenseConv;
  void run(const Launch& l) const override {
    map().expand(input<float>(l, 1), dense(l));
    if (!has_bias()) return multiply(l, {l.in[0], dense(l), l.out[0]});
    map().expand_bias(input<float>(l, 2), dense_bias(l));
    multiply(l, {l.in[0], dense(l), dense_bias(l), l.out[0]});
  }
};

// map's gradient = outputs' gradientᵀ · images
class GradWeight final : public DenseConv {
 public:
  GradWeight(const DenseMap& map, onednn::PrimitivePtr product, std::int64_t samples, bool has_bias)
      : DenseConv(map, std::move(product), false), samples_(samples), wants_bias_(has_bias) {}
  void run(const Launch& l) const override {
    multiply(l, {l.in[1], l.in[0], dense(l)});
    map().fold(dense(l), output<float>(l, 0));
    if (wants_bias_) map().fold_bias(input<float>(l, 1), samples_, output<float>(l, 1));
  }

 private:
  std::int64_t samples_;
  bool wants_bias_;
};

}  // namespace

bool dense_conv_is_faster(const Conv2dSize& s) {
  const std::int64_t pixels = s.image.h * s.image.w, taps = s.window.kernel.h * s.window.kernel.w;
  return s.groups == 1 && 2 * pixels < taps && s.n >= 32;
}

KernelPtr make_dense_conv2d(const KernelSpec& spec, const Conv2dSize& s) {
  const DenseMap map(s, spec.threads);
  const bool has_bias = spec.inputs.size() == 3;
  const onednn::Operand bias = row_major(1, map.rows());
  auto product = onednn::matmul(row_major(s.n, map.columns()), transposed(map.rows(), map.columns()),
                                has_bias ? &bias : nullptr, row_major(s.n, map.rows()), {spec.threads});
  return product ? std::make_unique<ByMap>(map, std::move(product), has_bias) : nullptr;
}

KernelPtr make_dense_conv2d_grad_input(const KernelSpec& spec, const Conv2dSize& s) {
  const DenseMap map(s, spec.threads);
  auto product = onednn::matmul(row_major(s.n, map.rows()), row_major(map.rows(), map.columns()), nullptr,
                                row_major(s.n, map.columns()), {spec.threads});
  return product ? std::make_unique<ByMap>(map, std::move(product), false) : nullptr;
}

KernelPtr make_dense_conv2d_grad_weight(const KernelSpec& spec, const Conv2dSize& s) {
  const DenseMap map(s, spec.threads);
  auto product = onednn::matmul(transposed(s.n, map.rows()), row_major(s.n, map.columns()), nullptr,
                                row_major(map.rows(), map.columns()), {spec.threads});
  return product ? std::make_unique<GradWeight>(map, std::move(product), s.n, spec.outputs.size() == 2)
                 : nullptr;
}

}  // namespace tandem::engine
