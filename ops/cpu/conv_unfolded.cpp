#include <tandem/ops/cpu/conv_unfolded.h>

#include <algorithm>
#include <array>
#include <memory>
#include <numeric>
#include <vector>

#include <tandem/core/base/memory.h>
#include <tandem/ops/cpu/conv_patches.h>
#include <tandem/ops/cpu/parallel.h>
#include <tandem/ops/cpu/sum_rows.h>

namespace tandem::engine {
namespace {

constexpr std::int64_t kMostBytes = 24 << 20;  // of a workspace, as of the library's convolutions

bool applies(const KernelSpec& spec, const Conv2dSize& s) {
  constexpr std::int64_t kMostPixels = 16;
  return spec.inputs[0].dtype == DType::bf16 && s.groups == 1 && s.image.h * s.image.w <= kMostPixels &&
         s.output.h * s.output.w <= kMostPixels;
}

std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// Patches are copied once and multiplied by every filter, so the copies pay if there are many filters. The
// larger the image, the better the library fills the tiles, and the more filters it takes (conv_unfolded.h).
bool has_many_filters(const Conv2dSize& s) { return s.out >= 32 * s.image.h * s.image.w; }

// Patches that lie in the workspace, unless each is one pixel, the output's own (1×1 kernels).
class UnfoldedPatches : public Patches<BFloat16> {
 public:
  explicit UnfoldedPatches(const Conv2dSize& s) : Patches(s), sources_(static_cast<std::size_t>(pixels)) {
    for (std::int64_t o = 0; o < outputs; ++o)
      for (std::int64_t t = 0; t < taps; ++t) {
        const std::int64_t from = pixel(o, t);
        if (from >= 0) sources_[static_cast<std::size_t>(from)].push_back((o * taps + t) * in);
        copies_ = copies_ || from != o || pixels != outputs;
      }
  }

  std::int64_t image() const { return pixels * in; }

  // Bytes of the part of the samples' patches that belongs to `count` taps.
  std::int64_t bytes(std::int64_t samples, std::int64_t count) const {
    return copies_ ? samples * outputs * count * in * size_of(DType::bf16) : 0;
  }
  // Returns the part of the samples' patches that belongs to taps `first` … first + count − 1.
  const BFloat16* unfold(const BFloat16* x, std::int64_t samples, std::int64_t first, std::int64_t count,
                         void* workspace, int threads) const {
    if (!copies_) return x;
    auto* const patches = static_cast<BFloat16*>(workspace);
    parallel_parts(threads, samples * outputs, [&](std::int64_t begin, std::int64_t end) {
      copy(x, begin, end - begin, first, count, patches + begin * count * in);
    });
    return patches;
  }

  // The adjoint of unfold: adds up, for each pixel, its copies in the patches, in their order.
  void fold(const float* patches, std::int64_t samples, BFloat16* x, int threads) const {
    parallel_parts(threads, samples * pixels, [&](std::int64_t begin, std::int64_t end) {
      constexpr std::int64_t kLanes = 128;  // channels that are summed together
      std::array<float, kLanes> sums{};
      for (std::int64_t p = begin; p < end; ++p) {
        const float* const sample = patches + p / pixels * outputs * taps * in;
        for (std::int64_t c = 0; c < in; c += kLanes) {
          const std::int64_t count = std::min(kLanes, in - c);
          sums.fill(0);
          for (const std::int64_t source : sources_[static_cast<std::size_t>(p % pixels)])
            add_row(sample + source + c, count, sums.data());
          floats_to_bf16(sums.data(), &x[p * in + c].bits, count);
        }
      }
    });
  }

 private:
  bool copies_ = false;                             // the patches differ from the images
  std::vector<std::vector<std::int64_t>> sources_;  // per pixel: where its copies lie in a sample's patches
};

// The samples in blocks of equal size. The last block overlaps the one before it and computes some of its
// results again. Each product repacks the weights, so blocks have hundreds of rows. Blocks have a multiple of
// 32 rows if there are enough samples: the library (2.6) is slow for some other numbers (with weights of 512
// filters of 3×3×512, 464 rows take 7.2 ms on one thread, 480 rows 2.6 ms).
struct Blocks {
  explicit Blocks(const Conv2dSize& s) : samples(s.n) {
    constexpr std::int64_t kMostRows = 512, kRowStep = 32;
    const std::int64_t outputs = s.output.h * s.output.w, step = kRowStep / std::gcd(kRowStep, outputs);
    std::int64_t blocks = divide_up(samples, std::max<std::int64_t>(1, kMostRows / outputs));
    do block = divide_up(divide_up(samples, blocks++), step) * step;
    while (block > samples && samples > step);
    block = std::min(block, samples);
  }
  template <class F> void for_each(const F& f) const {
    for (std::int64_t first = 0; first < samples; first += block) f(std::min(first, samples - block));
  }
  std::int64_t samples, block;
};

KernelPtr finish(std::function<void(const Launch&)> run, std::int64_t workspace) {
  return workspace <= kMostBytes ? make_kernel(std::move(run), workspace) : nullptr;
}
void* after(const Launch& l, std::int64_t bytes) { return static_cast<std::byte*>(l.workspace) + bytes; }

}  // namespace

// output (samples × pixels, out) = patches · weightsᵀ + bias
KernelPtr make_unfolded_conv2d(const KernelSpec& spec, const Conv2dSize& s, onednn::Team team) {
  if (!onednn::has_amx() || !applies(spec, s) || !has_many_filters(s)) return nullptr;
  const UnfoldedPatches p(s);
  const std::int64_t columns = p.taps * s.in;
  const Blocks b(s);
  const std::int64_t rows = b.block * p.outputs, bytes = align_up(p.bytes(b.block, p.taps));
  const onednn::Operand bias = row_major(DType::bf16, 1, s.out);
  const bool has_bias = spec.inputs.size() == 3;
  std::shared_ptr<const onednn::Primitive> product =
      onednn::matmul(row_major(DType::bf16, rows, columns), transposed(DType::bf16, s.out, columns),
                     has_bias ? &bias : nullptr, row_major(DType::bf16, rows, s.out), team);
  if (!product) return nullptr;
  return finish(
      [=](const Launch& l) {
        b.for_each([&](std::int64_t first) {
          const BFloat16* const patches = p.unfold(input<BFloat16>(l, 0) + first * p.image(), b.block, 0,
                                                   p.taps, l.workspace, team.threads);
          BFloat16* const y = output<BFloat16>(l, 0) + first * p.outputs * s.out;
          if (has_bias)
            product->compute({patches, l.in[1], l.in[2], y}, after(l, bytes));
          else
            product->compute({patches, l.in[1], y}, after(l, bytes));
        });
      },
      bytes + product->workspace());
}

// The patches' gradients = output's gradient · weights. They are added in f32, so nothing is rounded between.
KernelPtr make_unfolded_conv2d_grad_input(const KernelSpec& spec, const Conv2dSize& s, onednn::Team team) {
  if (!onednn::has_amx() || !applies(spec, s) || !has_many_filters(s)) return nullptr;
  const UnfoldedPatches p(s);
  const std::int64_t columns = p.taps * s.in;
  const Blocks b(s);
  const std::int64_t rows = b.block * p.outputs, bytes = align_up(rows * columns * size_of(DType::f32));
  std::shared_ptr<const onednn::Primitive> product =
      onednn::matmul(row_major(DType::bf16, rows, s.out), row_major(DType::bf16, s.out, columns), nullptr,
                     row_major(DType::f32, rows, columns), team);
  if (!product) return nullptr;
  return finish(
      [=](const Launch& l) {
        b.for_each([&](std::int64_t first) {
          product->compute({input<BFloat16>(l, 0) + first * p.outputs * s.out, l.in[1], l.workspace},
                           after(l, bytes));
          p.fold(static_cast<const float*>(l.workspace), b.block, output<BFloat16>(l, 0) + first * p.image(),
                 team.threads);
        });
      },
      bytes + product->workspace());
}

// The weights' gradient = (output's gradient)ᵀ · patches, for some taps at once. A product with a bf16 result
// would take a scratchpad of an f32 result per thread.
KernelPtr make_unfolded_conv2d_grad_weight(const KernelSpec& spec, const Conv2dSize& s, onednn::Team team) {
  if (!applies(spec, s)) return nullptr;
  const UnfoldedPatches p(s);
  const std::int64_t rows = s.n * p.outputs, tap_sums = s.out * s.in * size_of(DType::f32);
  std::int64_t taps = p.taps;  // at once
  while (taps > 1 && (p.taps % taps != 0 || p.bytes(s.n, taps) + taps * tap_sums > kMostBytes / 2)) --taps;
  const std::int64_t columns = taps * s.in, patch_bytes = align_up(p.bytes(s.n, taps)),
                     bytes = patch_bytes + align_up(taps * tap_sums);
  std::shared_ptr<const onednn::Primitive> product =
      onednn::matmul(transposed(DType::bf16, rows, s.out), row_major(DType::bf16, rows, columns), nullptr,
                     row_major(DType::f32, s.out, columns), team);
  if (!product) return nullptr;
  const bool has_bias = spec.outputs.size() == 2;
  return finish(
      [=](const Launch& l) {
        auto* const w = static_cast<float*>(after(l, patch_bytes));
        for (std::int64_t first = 0; first < p.taps; first += taps) {
          const BFloat16* const patches =
              p.unfold(input<BFloat16>(l, 0), s.n, first, taps, l.workspace, team.threads);
          product->compute({l.in[1], patches, w}, after(l, bytes));
          parallel_parts(team.threads, s.out, [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t o = begin; o < end; ++o)
              floats_to_bf16(w + o * columns, &output<BFloat16>(l, 0)[(o * p.taps + first) * s.in].bits,
                             columns);
          });
        }
        if (has_bias) sum_rows(input<BFloat16>(l, 1), rows, s.out, output<BFloat16>(l, 1), team.threads);
      },
      bytes + product->workspace());
}

}  // namespace tandem::engine
