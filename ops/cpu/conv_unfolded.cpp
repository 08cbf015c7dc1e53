#include <tandem/ops/cpu/conv_unfolded.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>

#include <tandem/core/base/memory.h>
#include <tandem/ops/cpu/parallel.h>

namespace tandem::engine {
namespace {

// The patches of all output pixels, one below the other.
struct Unfolded {
  Unfolded(const Conv2dSize& s, DType dtype)
      : rows(s.n * s.output.h * s.output.w),
        columns(s.window.kernel.h * s.window.kernel.w * s.in),
        bytes(rows * columns * size_of(dtype)) {}
  bool is_fast(const KernelSpec& spec, const Conv2dSize& s, std::int64_t most_pixels) const {
    constexpr std::int64_t kMostBytes = 24 << 20;
    return spec.inputs[0].dtype == DType::bf16 && s.groups == 1 && s.output.h * s.output.w <= most_pixels &&
           bytes <= kMostBytes;
  }
  std::int64_t rows, columns, bytes;
};

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

// The reverse: adds the patches' values of each pixel of the image, in f32, in the order of the kernel.
void fold(const Conv2dSize& s, const float* patches, BFloat16* x, int threads) {
  constexpr std::int64_t kBlock = 128;  // channels that are summed together
  const Window& w = s.window;
  const std::int64_t pixels = s.image.h * s.image.w, columns = w.kernel.h * w.kernel.w * s.in;
  parallel_parts(threads, s.n * pixels, [&](std::int64_t begin, std::int64_t end) {
    std::array<float, kBlock> sums{};
    for (std::int64_t p = begin; p < end; ++p)
      for (std::int64_t first = 0; first < s.in; first += kBlock) {
        const std::int64_t count = std::min(kBlock, s.in - first);
        sums.fill(0);
        for (std::int64_t k = 0; k < w.kernel.h * w.kernel.w; ++k) {
          const std::int64_t h = p % pixels / s.image.w + w.padding.h - k / w.kernel.w * w.dilation.h,
                             v = p % s.image.w + w.padding.w - k % w.kernel.w * w.dilation.w;
          if (h < 0 || v < 0 || h % w.stride.h != 0 || v % w.stride.w != 0 || h / w.stride.h >= s.output.h ||
              v / w.stride.w >= s.output.w)
            continue;
          const std::int64_t row = (p / pixels * s.output.h + h / w.stride.h) * s.output.w + v / w.stride.w;
          const float* const part = patches + row * columns + k * s.in + first;
          for (std::int64_t c = 0; c < count; ++c) sums[static_cast<std::size_t>(c)] += part[c];
        }
        for (std::int64_t c = 0; c < count; ++c) x[p * s.in + first + c] = sums[static_cast<std::size_t>(c)];
      }
  });
}

}  // namespace

KernelPtr make_unfolded_conv2d(const KernelSpec& spec, const Conv2dSize& s, onednn::Team team) {
  const Unfolded u(s, DType::bf16);
  if (!onednn::has_amx() || !u.is_fast(spec, s, /*most_pixels=*/16)) return nullptr;
  const auto [rows, columns, bytes] = u;
  const onednn::Operand patches{DType::bf16, {rows, columns}, {columns, 1}},
      w{DType::bf16, {columns, s.out}, {1, columns}}, bias{DType::bf16, {1, s.out}, {s.out, 1}},
      y{DType::bf16, {rows, s.out}, {s.out, 1}};
  const bool has_bias = spec.inputs.size() == 3;
  std::shared_ptr<const onednn::Primitive> product =
      onednn::matmul(patches, w, has_bias ? &bias : nullptr, y, team);
  if (!product) return nullptr;
  return make_kernel(
      [=, bytes = bytes](const Launch& l) {
        auto* const unfolded = static_cast<BFloat16*>(l.workspace);
        unfold(s, input<BFloat16>(l, 0), unfolded, team.threads);
        std::array<void*, 4> operands{unfolded, const_cast<void*>(l.in[1])};
        if (has_bias) operands[2] = const_cast<void*>(l.in[2]);
        operands[has_bias ? 3 : 2] = l.out[0];
        product->require_success(product->run({operands.data(), std::size_t{has_bias ? 4U : 3U}},
                                              static_cast<std::byte*>(l.workspace) + align_up(bytes)));
      },
      align_up(bytes) + product->workspace());
}

// The gradients of the patches are added in f32, so nothing is rounded in between.
KernelPtr make_unfolded_conv2d_grad_input(const KernelSpec& spec, const Conv2dSize& s, onednn::Team team) {
  const Unfolded u(s, DType::f32);
  if (!onednn::has_amx() || !u.is_fast(spec, s, /*most_pixels=*/4)) return nullptr;
  const auto [rows, columns, bytes] = u;
  const onednn::Operand y{DType::bf16, {rows, s.out}, {s.out, 1}},
      w{DType::bf16, {s.out, columns}, {columns, 1}}, patches{DType::f32, {rows, columns}, {columns, 1}};
  std::shared_ptr<const onednn::Primitive> product = onednn::matmul(y, w, nullptr, patches, team);
  if (!product) return nullptr;
  return make_kernel(
      [=, bytes = bytes](const Launch& l) {
        std::array<void*, 3> operands{const_cast<void*>(l.in[0]), const_cast<void*>(l.in[1]), l.workspace};
        product->require_success(
            product->run(operands, static_cast<std::byte*>(l.workspace) + align_up(bytes)));
        fold(s, static_cast<const float*>(l.workspace), output<BFloat16>(l, 0), team.threads);
      },
      align_up(bytes) + product->workspace());
}

KernelPtr make_unfolded_conv2d_grad_weight(const KernelSpec& spec, const Conv2dSize& s, onednn::Team team) {
  const Unfolded u(s, DType::bf16);
  if (!u.is_fast(spec, s, /*most_pixels=*/16)) return nullptr;
  const auto [rows, columns, bytes] = u;
  const onednn::Operand y{DType::bf16, {s.out, rows}, {1, s.out}},
      patches{DType::bf16, {rows, columns}, {columns, 1}}, w{DType::bf16, {s.out, columns}, {columns, 1}};
  std::shared_ptr<const onednn::Primitive> product = onednn::matmul(y, patches, nullptr, w, team);
  if (!product) return nullptr;
  const bool bias = spec.outputs.size() == 2;
  return make_kernel(
      [=, rows = rows, bytes = bytes](const Launch& l) {
        auto* const unfolded = static_cast<BFloat16*>(l.workspace);
        unfold(s, input<BFloat16>(l, 0), unfolded, team.threads);
        std::array<void*, 3> operands{const_cast<void*>(l.in[1]), unfolded, l.out[0]};
        product->require_success(
            product->run(operands, static_cast<std::byte*>(l.workspace) + align_up(bytes)));
        if (bias) sum_rows(input<BFloat16>(l, 1), rows, s.out, output<BFloat16>(l, 1), team.threads);
      },
      align_up(bytes) + product->workspace());
}

}  // namespace tandem::engine
