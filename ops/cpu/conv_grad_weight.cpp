#include <tandem/ops/cpu/conv_grad_weight.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <tandem/core/base/clones.h>
#include <tandem/core/base/error.h>
#include <tandem/core/base/memory.h>
#include <tandem/core/base/team.h>
#include <tandem/ops/cpu/conv_patches.h>
#include <tandem/ops/cpu/parallel.h>
#include <tandem/ops/cpu/sum_rows.h>

namespace tandem::engine {
namespace {

std::int64_t elements_of(const onednn::Operand& o) {
  std::int64_t n = 1;
  for (const std::int64_t extent : o.extents) n *= extent;
  return n;
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

class PatchesKernel final : public Kernel {
 public:
  PatchesKernel(const Conv2dSize& s, int threads)
      : threads_(static_cast<int>(std::min<std::int64_t>(threads, s.n * s.output.h * s.output.w))),
        patches_(s),
        rows_(s.n * patches_.outputs),
        out_(s.out),
        block_(std::max<std::int64_t>(16, kPatchBytes / (columns() * std::int64_t{sizeof(float)}))) {}

  // The shares of all threads but the first, which adds up its own in the result; then each thread's patches.
  std::int64_t workspace() const override {
    return (threads_ - 1) * share_bytes() + threads_ * patch_bytes();
  }

  void run(const Launch& l) const override {
    auto* const shares = static_cast<std::byte*>(l.workspace);
    auto* const patches = shares + (threads_ - 1) * share_bytes();
    auto* const result = output<float>(l, 0);
    const auto share = [&](std::int64_t thread) {
      return thread == 0 ? result : reinterpret_cast<float*>(shares + (thread - 1) * share_bytes());
    };
    const TeamSize alone(1);  // of each product
    std::atomic<int> status = 0;
    parallel_parts(threads_, threads_, [&](std::int64_t t, std::int64_t) {
      const int failed = sum_products(input<float>(l, 0), input<float>(l, 1), rows_ * t / threads_,
                                      rows_ * (t + 1) / threads_,
                                      reinterpret_cast<float*>(patches + t * patch_bytes()), share(t));
      if (failed) status = failed;
    });
    if (status != 0)
      throw Error(fmt::format("oneDNN: a product of a convolution failed with status {}", status.load()));
    parallel_parts(threads_, out_ * columns(), [&](std::int64_t begin, std::int64_t end) {
      for (int t = 1; t < threads_; ++t) add_row(share(t) + begin, end - begin, result + begin);
    });
  }

 private:
  static constexpr std::int64_t kPatchBytes = 1 << 20;
  std::int64_t columns() const { return patches_.taps * patches_.in; }
  std::int64_t share_bytes() const { return align_up(out_ * columns() * std::int64_t{sizeof(float)}); }
  std::int64_t patch_bytes() const { return align_up(block_ * columns() * std::int64_t{sizeof(float)}); }

  // sums (out, columns) = Σ dyᵀ · patches over the output's pixels `begin` … `end` − 1. Returns a status.
  int sum_products(const float* x, const float* dy, std::int64_t begin, std::int64_t end, float* patches,
                   float* sums) const noexcept {
    for (std::int64_t row = begin; row < end; row += block_) {
      const std::int64_t rows = std::min(block_, end - row);
      patches_.copy(x, row, rows, 0, patches_.taps, patches);
      if (const int failed = onednn::gemm({dy + row * out_, out_, true}, {patches, columns()}, sums,
                                          columns(), out_, columns(), rows, row > begin))
        return failed;
    }
    return 0;
  }

  int threads_;
  Patches<float> patches_;
  std::int64_t rows_, out_;
  std::int64_t block_;  // pixels whose patches are multiplied at once
};

}  // namespace

KernelPtr make_patches_conv2d_grad_weight(const KernelSpec& spec, const Conv2dSize& s, onednn::Team team) {
  constexpr std::int64_t kFewChannels = 32, kMostBytes = 24 << 20;
  const bool strided = s.window.stride.h > 1 && s.window.stride.w > 1;
  const bool tall = s.window.kernel.h > 1 && s.window.kernel.w == 1;
  if (spec.inputs[0].dtype != DType::f32 || !onednn::has_gemm() || s.groups != 1 || !(strided || tall) ||
      s.in < kFewChannels || spec.outputs.size() == 2)
    return nullptr;
  auto kernel = std::make_unique<PatchesKernel>(s, team.threads);
  return kernel->workspace() <= kMostBytes ? std::move(kernel) : nullptr;
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
