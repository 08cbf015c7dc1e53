#include "class_dataset.h"

#include <array>
#include <cstring>
#include <string>

#include <tandem/core/base/rng.h>

namespace tandem::testing {
using namespace engine;

void ClassDataset::get(std::int64_t, std::int64_t index, Sample& sample) const {
  require_index(*this, index);
  const auto u = uniform4(RngKey{seed_, 0, fnv1a("class dataset")}, static_cast<std::uint64_t>(index), 0);
  const auto label = static_cast<std::int32_t>(index % 3);
  std::array<float, 4> values{};
  for (std::size_t i = 0; i < 4; ++i)
    values[i] = static_cast<float>(u[i]) - 0.5f + (static_cast<std::int32_t>(i) == label ? 1.f : 0.f);
  sample.data.resize(sizeof values);
  std::memcpy(sample.data.data(), values.data(), sizeof values);
  sample.labels = {label};
  sample.weights.clear();
}

void MixedLabels::get(std::int64_t epoch, std::int64_t index, Sample& sample) const {
  ClassDataset::get(epoch, index, sample);
  sample.labels.push_back((sample.labels[0] + 1) % 3);
  const float first = static_cast<float>(index % 5) / 4;
  sample.weights = {first, 1 - first};
}

}  // namespace tandem::testing
