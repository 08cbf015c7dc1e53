#include "numbered_dataset.h"

#include <cstring>
#include <string>
#include <utility>

namespace tandem::testing {
using namespace engine;

NumberedDataset::NumberedDataset(std::int64_t size, std::set<std::int64_t> bad)
    : size_(size), bad_(std::move(bad)) {}

void NumberedDataset::get(std::int64_t epoch, std::int64_t index, Sample& sample) const {
  require_index(*this, index);
  if (bad_.contains(index))
    throw BadSample("numbers.bin: record " + std::to_string(index) + ", offset " + std::to_string(8 * index) +
                    ": is damaged");
  const float values[] = {static_cast<float>(index), static_cast<float>(epoch)};
  sample.data.resize(sizeof values);
  std::memcpy(sample.data.data(), values, sizeof values);
  sample.labels.assign(1, static_cast<std::int32_t>(index));
  sample.weights.clear();
}

Sample sample_of(const Dataset& dataset, std::int64_t epoch, std::int64_t index) {
  Sample sample;
  dataset.get(epoch, index, sample);
  return sample;
}

}  // namespace tandem::testing
