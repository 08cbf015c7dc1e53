#include <tandem/datasets/transforms/random_flip.h>

#include <algorithm>

#include <fmt/format.h>

#include <tandem/core/base/rng.h>

namespace tandem {
using namespace engine;
namespace {

/// Rows of `width` pixels of kPixel bytes, each mirrored.
template <std::int64_t kPixel> void mirror(std::byte* image, std::int64_t height, std::int64_t width) {
  for (std::byte* row = image; row != image + height * width * kPixel; row += width * kPixel)
    for (std::byte *l = row, *r = row + (width - 1) * kPixel; l < r; l += kPixel, r -= kPixel)
      std::swap_ranges(l, l + kPixel, r);
}

}  // namespace

RandomFlip::RandomFlip(std::uint64_t seed, double probability) : seed_(seed), probability_(probability) {
  if (!(probability >= 0 && probability <= 1))
    throw Error(fmt::format("RandomFlip: a probability of {}; it must be in 0 … 1", probability));
}

TensorType RandomFlip::type(const TensorType& in) const {
  require_image("RandomFlip", in);
  if (in.shape[2] != 1 && in.shape[2] != 3)
    throw Error(fmt::format("RandomFlip takes images of 1 or 3 channels, not {}", to_string(in)));
  return in;
}

void RandomFlip::apply(std::int64_t epoch, std::int64_t index, const TensorType& in, Sample& sample) const {
  static const std::uint64_t id = fnv1a("random_flip");
  const RngKey key{seed_, static_cast<std::uint64_t>(epoch), id};
  if (uniform(key, static_cast<std::uint64_t>(index), 0) >= probability_) return;
  in.shape[2] == 3 ? mirror<3>(sample.data.data(), in.shape[0], in.shape[1])
                   : mirror<1>(sample.data.data(), in.shape[0], in.shape[1]);
}

}  // namespace tandem
