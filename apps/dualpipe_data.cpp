#include <algorithm>
#include <memory>

#include <tandem/datasets/cifar.h>
#include <tandem/datasets/draw.h>
#include <tandem/datasets/drawn_dataset.h>
#include <tandem/datasets/mapped_dataset.h>
#include <tandem/datasets/shuffled_dataset.h>
#include <tandem/datasets/transforms/normalize.h>

#include "dualpipe_run.h"

namespace tandem::apps {
namespace {

constexpr std::int64_t kSmallTrain = 10'000, kSmallTest = 1000, kPaperTrain = 50'000, kPaperTest = 10'000;

MemoryDataset read(const DualPipeRun& run, CifarSplit split) {
  if (!run.data.empty()) return load_cifar(run.data, split, nullptr, CifarKind::cifar10);
  return split == CifarSplit::train
             ? draw_cifar(run.paper ? kPaperTrain : kSmallTrain, 0)
             : draw_cifar(run.paper ? kPaperTest : kSmallTest, 0, kFirstDrawnTestIndex);
}

DatasetPtr normalized(MemoryDataset images) {
  return mapped(std::make_shared<MemoryDataset>(std::move(images)),
                {std::make_shared<Normalize>(kCifarMean, kCifarStd)});
}

}  // namespace

DualPipeData read_data(const DualPipeRun& run) {
  DualPipeData data;
  const auto reads_texts = [](const DualPipeNetwork& n) { return n.reads_texts; };
  if (!std::ranges::all_of(run.networks, reads_texts))
    data.images = {normalized(read(run, CifarSplit::train)), normalized(read(run, CifarSplit::test))};
  if (std::ranges::any_of(run.networks, reads_texts))
    data.texts = {draw_texts(run.paper ? kPaperTrain : kSmallTrain, 0),
                  draw_texts(run.paper ? kPaperTest : kSmallTest, kFirstDrawnTestIndex)};
  return data;
}

}  // namespace tandem::apps
