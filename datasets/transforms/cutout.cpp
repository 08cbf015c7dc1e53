#include <tandem/datasets/transforms/cutout.h>

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include <tandem/core/base/rng.h>

namespace tandem {
using namespace engine;

Cutout::Cutout(std::uint64_t seed, std::int64_t size) : seed_(seed), size_(size) {
  if (size < 0) throw Error(fmt::format("Cutout: a square of {} pixels; it must be at least 0", size));
}

TensorType Cutout::type(const TensorType& in) const {
  if (in.rank() != 3) throw Error(fmt::format("Cutout takes images (H,W,C), not {}", to_string(in)));
  return in;
}

void Cutout::apply(std::int64_t epoch, std::int64_t index, const TensorType& in, Sample& sample) const {
  static const std::uint64_t id = fnv1a("cutout");
  const auto u =
      uniform4({seed_, static_cast<std::uint64_t>(epoch), id}, static_cast<std::uint64_t>(index), 0);
  const std::int64_t height = in.shape[0], width = in.shape[1], pixel = in.shape[2] * size_of(in.dtype);
  const auto corner = [&](float where, std::int64_t extent) {
    return static_cast<std::int64_t>(where * static_cast<float>(extent)) - size_ / 2;
  };
  const std::int64_t top = corner(u[0], height), left = corner(u[1], width);
  const std::int64_t from = std::max<std::int64_t>(left, 0), to = std::min(left + size_, width);
  if (to <= from) return;
  for (std::int64_t y = std::max<std::int64_t>(top, 0); y < std::min(top + size_, height); ++y)
    std::memset(sample.data.data() + (y * width + from) * pixel, 0,
                static_cast<std::size_t>((to - from) * pixel));
}

}  // namespace tandem
