#include <tandem/ops/cpu/conv_grad_weight.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include <tandem/core/base/clones.h>
#include <tandem/core/base/memory.h>
#include <tandem/ops/cpu/parallel.h>

namespace tandem::engine {
namespace {

std::int64_t elements_of(const onednn::Operand& o) {
  std::int64_t n = 1;
  for (const std::int64_t extent : o.extents) n *= extent;
  return n;
}

// Patch (n,oh,ow) becomes a row of kernel height × kernel width × channels elements; padding is 0.
void unfold(const Conv2dSize& s, const BFloat16* x, BFloat16* patches, int threads) {
  const Window& w = s.window;
  const std::int64_t line = w.kernel.w * s.in, row = w.kernel.h * line;
  parallel_parts(threads, s.n * s.output.h, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const BFloat16* image = x + r / s.output.h * s.image.h * s.image.w * s.in;
      for (std::int64_t ow = 0; ow < s.output.w; ++ow) {
        BFloat16* to = patches + (r * s.output.w + ow) * row;
        for (std::int64_t kh = 0; kh < w.kernel.h; ++kh)
          for (std::int64_t kw = 0; kw < w.kernel.w; ++kw, to += s.in) {
            const std::int64_t h = r % s.output.h * w.stride.h + kh * w.dilation.h - w.padding.h,
                               v = ow * w.stride.w + kw * w.dilation.w - w.padding.w;
            const auto bytes = static_cast<std::size_t>(s.in) * sizeof(BFloat16);
            if (h >= 0 && h < s.image.h && v >= 0 && v < s.image.w)
              std::memcpy(to, image + (h * s.image.w + v) * s.in, bytes);
            else
              std::memset(static_cast<void*>(to), 0, bytes);
          }
      }
    }
  });
}

// The bias's gradient: the sums over all rows (samples and pixels), in f32.
void sum_rows(const BFloat16* y, std::int64_t rows, std::int64_t channels, BFloat16* sums, int threads) {
  parallel_parts(threads, channels, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t c = begin; c < end; ++c) {
      float sum = 0;
      for (std::int64_t r = 0; r < rows; ++r) sum += y[r * channels + c];
      sums[c] = sum;
    }
  });
}

// Partial sums of a gradient: those of one thread lie `distance` after those of the thread before.
struct Shares {
  const float* first;
  std::int64_t distance;
  int count;
  float sum(std::int64_t i) const {
    float sum = first[i];
    for (int s = 1; s < count; ++s) sum += first[s * distance + i];
    return sum;
  }
};
TANDEM_CLONES void add_f32(const Shares& shares, std::int64_t begin, std::int64_t end, float* sums) {
  for (std::int64_t i = begin; i < end; ++i) sums[i] = shares.sum(i);
}
TANDEM_CLONES void add_bf16(const Shares& shares, std::int64_t begin, std::int64_t end, std::uint16_t* sums) {
  for (std::int64_t i = begin; i < end; ++i) sums[i] = float_to_bf16(shares.sum(i));
}

class SharedKernel final : public Kernel {
 public:
  SharedKernel(onednn::PrimitivePtr primitive, const onednn::Operand& x, const onednn::Operand& y,
               const onednn::Operand& w, const onednn::Operand* bias, int threads)
      : primitive_(std::move(primitive)),
        threads_(threads),
        dtype_(x.dtype),
        x_bytes_(elements_of(x) * size_of(x.dtype)),
        y_bytes_(elements_of(y) * size_of(y.dtype)),
        weights_(elements_of(w)),
        biases_(bias ? elements_of(*bias) : 0),
        share_(align_up((weights_ + biases_) * std::int64_t{sizeof(float)})),
        scratch_(align_up(primitive_->workspace())) {}

  std::int64_t workspace() const override { return threads_ * (share_ + scratch_); }

  void run(const Launch& l) const override {
    auto* const shares = static_cast<std::byte*>(l.workspace);
    std::atomic<int> status = 0;
    parallel_parts(threads_, threads_, [&](std::int64_t t, std::int64_t) {
      auto* const share = reinterpret_cast<float*>(shares + t * share_);
      const auto part = [&](int i, std::int64_t bytes) {
        return const_cast<std::byte*>(input<std::byte>(l, i)) + t * bytes;
      };
      std::array<void*, 4> operands{part(0, x_bytes_), part(1, y_bytes_), share, share + weights_};
      if (const int failed = primitive_->run({operands.data(), std::size_t{biases_ > 0 ? 4U : 3U}},
                                             shares + threads_ * share_ + t * scratch_))
        status = failed;
    });
    primitive_->require_success(status);
    const Shares sums{reinterpret_cast<const float*>(shares), share_ / std::int64_t{sizeof(float)}, threads_},
        biases{sums.first + weights_, sums.distance, threads_};
    parallel_parts(useful_threads(threads_, threads_ * share_), weights_,
                   [&](std::int64_t begin, std::int64_t end) { add(sums, begin, end, l, 0); });
    if (biases_ > 0) add(biases, 0, biases_, l, 1);
  }

 private:
  void add(const Shares& shares, std::int64_t begin, std::int64_t end, const Launch& l, int to) const {
    if (dtype_ == DType::f32)
      add_f32(shares, begin, end, output<float>(l, to));
    else
      add_bf16(shares, begin, end, output<std::uint16_t>(l, to));
  }

  onednn::PrimitivePtr primitive_;  // computes a share on one thread
  int threads_;
  DType dtype_;                     // of the result
  std::int64_t x_bytes_, y_bytes_;  // of a share
  std::int64_t weights_, biases_;
  std::int64_t share_, scratch_;  // bytes per thread
};

}  // namespace

KernelPtr make_unfolded_conv2d_grad_weight(const KernelSpec& spec, const Conv2dSize& s, onednn::Team team) {
  constexpr std::int64_t kFewPixels = 16, kMostBytes = 24 << 20;
  const std::int64_t rows = s.n * s.output.h * s.output.w,
                     columns = s.window.kernel.h * s.window.kernel.w * s.in,
                     bytes = rows * columns * std::int64_t{sizeof(BFloat16)};
  if (spec.inputs[0].dtype != DType::bf16 || s.groups != 1 || s.output.h * s.output.w > kFewPixels ||
      bytes > kMostBytes)
    return nullptr;
  const onednn::Operand y{DType::bf16, {s.out, rows}, {1, s.out}},
      patches{DType::bf16, {rows, columns}, {columns, 1}}, w{DType::bf16, {s.out, columns}, {columns, 1}};
  std::shared_ptr<const onednn::Primitive> product = onednn::matmul(y, patches, nullptr, w, team);
  if (!product) return nullptr;
  const bool bias = spec.outputs.size() == 2;
  return make_kernel(
      [=](const Launch& l) {
        auto* const unfolded = static_cast<BFloat16*>(l.workspace);
        unfold(s, input<BFloat16>(l, 0), unfolded, team.threads);
        std::array<void*, 3> operands{const_cast<void*>(l.in[1]), unfolded, l.out[0]};
        product->require_success(
            product->run(operands, static_cast<std::byte*>(l.workspace) + align_up(bytes)));
        if (bias) sum_rows(input<BFloat16>(l, 1), rows, s.out, output<BFloat16>(l, 1), team.threads);
      },
      align_up(bytes) + product->workspace());
}

KernelPtr make_shared_conv2d_grad_weight(onednn::Operand x, onednn::Operand y, onednn::Operand w,
                                         const onednn::Operand* bias, const Window& window,
                                         onednn::Team team) {
  constexpr std::int64_t kFewWeights = 24 << 10, kSmallImage = 4 << 10;  // elements
  const bool small = elements_of(w) <= kFewWeights && elements_of(y) / y.extents[0] <= kSmallImage;
  if (x.dtype != DType::bf16 && !(x.dtype == DType::f32 && small)) return nullptr;
  if (team.threads == 1 || x.extents[0] % team.threads != 0) return nullptr;
  x.extents[0] /= team.threads;
  y.extents[0] /= team.threads;
  w.dtype = DType::f32;
  std::optional<onednn::Operand> sums;
  if (bias) sums = *bias, sums->dtype = DType::f32;
  onednn::PrimitivePtr share = onednn::convolution_grad_weight(x, y, w, sums ? &*sums : nullptr, window,
                                                               {1, team.threads * team.callers});
  if (!share) return nullptr;
  return std::make_unique<SharedKernel>(std::move(share), x, y, w, sums ? &*sums : nullptr, team.threads);
}

}  // namespace tandem::engine
