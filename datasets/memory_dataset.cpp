#include <tandem/datasets/memory_dataset.h>

#include <utility>

#include <fmt/format.h>

#include <tandem/core/base/checksum.h>

namespace tandem {
using namespace engine;

MemoryDataset::MemoryDataset(TensorType type, std::vector<std::uint8_t> bytes,
                             std::vector<std::int32_t> labels, int classes)
    : sample_type(std::move(type)), bytes(std::move(bytes)), labels(std::move(labels)), class_count(classes) {
  if (std::ssize(this->bytes) != size() * sample_type.bytes())
    throw Error(fmt::format(
        "{} bytes and {} for samples of {}, {} bytes each; give as many samples as labels",
        this->bytes.size(), counted(size(), "label"), to_string(sample_type), sample_type.bytes()));
}

MemoryDataset::MemoryDataset(const Dataset& source, BadSamples* bad)
    : sample_type(source.type()), class_count(source.classes()) {
  if (source.labels_per_sample() != 1)
    throw Error(fmt::format("a MemoryDataset holds one label per sample, but the source has {}",
                            source.labels_per_sample()));
  bytes.reserve(static_cast<std::size_t>(source.size() * sample_type.bytes()));
  labels.reserve(static_cast<std::size_t>(source.size()));
  Sample sample;
  for (std::int64_t i = 0; i < source.size(); ++i) try {
      source.get(0, i, sample);
      const auto* const data = reinterpret_cast<const std::uint8_t*>(sample.data.data());
      bytes.insert(bytes.end(), data, data + sample.data.size());
      labels.push_back(sample.labels.at(0));
    } catch (const BadSample& e) {
      if (!bad) throw;
      bad->met(i, e);
    }
}

void MemoryDataset::get(std::int64_t epoch, std::int64_t index, Sample& sample) const {
  get_labels(epoch, index, sample);
  const auto count = bytes.size() / labels.size();
  const auto* const data =
      reinterpret_cast<const std::byte*>(bytes.data()) + static_cast<std::size_t>(index) * count;
  sample.data.assign(data, data + count);
}

void MemoryDataset::get_labels(std::int64_t, std::int64_t index, Sample& sample) const {
  require_index(*this, index);
  sample.labels.assign(1, labels[static_cast<std::size_t>(index)]);
  sample.weights.clear();
}

std::string MemoryDataset::digest() const {
  Checksum sum;
  sum.update(std::as_bytes(std::span(labels)));
  sum.update(std::as_bytes(std::span(bytes)));
  return sum.hex();
}

}  // namespace tandem
