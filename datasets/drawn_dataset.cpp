#include <tandem/datasets/drawn_dataset.h>

#include <fmt/format.h>

#include <tandem/datasets/cifar.h>
#include <tandem/datasets/draw.h>

namespace tandem {
using namespace engine;

DrawnDataset::DrawnDataset(std::int64_t size, std::uint64_t seed, std::int64_t first_index)
    : size_(size), seed_(seed), first_index_(first_index) {
  if (size < 0 || first_index < 0)
    throw Error(fmt::format("drawing {} images from index {}; neither may be negative", size, first_index));
}

TensorType DrawnDataset::type() const { return cifar_image_type(); }
int DrawnDataset::classes() const { return kDrawnClasses; }

void DrawnDataset::get(std::int64_t, std::int64_t index, Sample& sample) const {
  require_index(*this, index);
  sample.data.resize(kCifarImageBytes);
  const std::span pixels(reinterpret_cast<std::uint8_t*>(sample.data.data()), sample.data.size());
  sample.labels.assign(1, draw_image(seed_, first_index_ + index, pixels.first<kCifarImageBytes>()));
  sample.weights.clear();
}

MemoryDataset draw_cifar(std::int64_t count, std::uint64_t seed, std::int64_t first_index) {
  return MemoryDataset(DrawnDataset(count, seed, first_index));
}

}  // namespace tandem
