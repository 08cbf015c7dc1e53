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

DualPipeImages read_images(const DualPipeRun& run) {
  return {normalized(read(run, CifarSplit::train)), normalized(read(run, CifarSplit::test))};
}

}  // namespace tandem::apps
