#include <tandem/datasets/transforms/random_crop.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include <fmt/format.h>

#include <tandem/core/base/rng.h>

namespace tandem {
using namespace engine;

RandomCrop::RandomCrop(std::uint64_t seed, std::int64_t padding) : seed_(seed), padding_(padding) {
  if (padding < 0) throw Error(fmt::format("RandomCrop: a padding of {}; it must be at least 0", padding));
}

TensorType RandomCrop::type(const TensorType& in) const {
  require_image("RandomCrop", in);
  return in;
}

void RandomCrop::apply(std::int64_t epoch, std::int64_t index, const TensorType& in, Sample& sample) const {
  static const std::uint64_t id = fnv1a("random_crop");
  const auto u =
      uniform4({seed_, static_cast<std::uint64_t>(epoch), id}, static_cast<std::uint64_t>(index), 0);
  const auto places = static_cast<float>(2 * padding_ + 1);
  // The place of the image's corner in the result.
  const std::int64_t down = padding_ - static_cast<std::int64_t>(u[0] * places);
  const std::int64_t right = padding_ - static_cast<std::int64_t>(u[1] * places);
  const std::int64_t height = in.shape[0], width = in.shape[1], pixel = in.shape[2];

  sample.spare.assign(sample.data.size(), std::byte{0});
  const std::int64_t columns = width - std::min(std::abs(right), width);
  for (std::int64_t y = std::max<std::int64_t>(down, 0); y < std::min(height, height + down); ++y)
    std::memcpy(sample.spare.data() + (y * width + std::max<std::int64_t>(right, 0)) * pixel,
                sample.data.data() + ((y - down) * width + std::max<std::int64_t>(-right, 0)) * pixel,
                static_cast<std::size_t>(columns * pixel));
  sample.data.swap(sample.spare);
}

}  // namespace tandem
