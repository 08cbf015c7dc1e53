#include <cstring>
#include <memory>
#include <vector>

#include <tandem/core/base/rng.h>
#include <tandem/datasets/memory_dataset.h>

#include "dualpipe_run.h"

namespace tandem::apps {
namespace {

using engine::uniform;

constexpr std::int64_t kWords = 20, kTelling = 10;  // of a text; words that tell one of the two classes
constexpr double kShareOfTelling = 0.25, kRight = 0.85;

}  // namespace

DatasetPtr draw_texts(std::int64_t count, std::int64_t first_index) {
  const engine::RngKey key{.seed = 0, .batch = 0, .rng_id = engine::fnv1a("texts")};
  std::vector<std::int32_t> words, labels;
  for (std::int64_t i = first_index; i < first_index + count; ++i) {
    const auto text = static_cast<std::uint64_t>(i);
    std::uint64_t drawn = 0;
    const auto draw = [&] { return static_cast<double>(uniform(key, text, drawn++)); };
    const int label = draw() < 0.5 ? 0 : 1;
    labels.push_back(label);
    for (std::int64_t w = 0; w < kWords; ++w) {
      const bool tells = draw() < kShareOfTelling, right = draw() < kRight;
      const double place = draw();
      // First the words that tell class 0, then those of class 1, then all others, of which early ones are
      // frequent.
      const std::int64_t told = right ? label : 1 - label;
      const double others = static_cast<double>(kDrawnWords - 2 * kTelling);
      words.push_back(static_cast<std::int32_t>(
          tells ? told * kTelling + static_cast<std::int64_t>(place * kTelling)
                : 2 * kTelling + static_cast<std::int64_t>(place * place * others)));
    }
  }
  std::vector<std::uint8_t> bytes(words.size() * sizeof(std::int32_t));
  std::memcpy(bytes.data(), words.data(), bytes.size());
  return std::make_shared<MemoryDataset>(TensorType{DType::i32, {kWords}}, std::move(bytes),
                                         std::move(labels),
                                         /*classes=*/2);
}

}  // namespace tandem::apps
