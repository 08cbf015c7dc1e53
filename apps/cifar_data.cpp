#include "cifar_data.h"

#include <utility>

#include <fmt/format.h>

#include <tandem/core/base/memory.h>
#include <tandem/tandem.h>

#include "augment.h"
#include "log.h"
#include "sweep.h"

namespace tandem::apps {
namespace {

constexpr std::int64_t kManyImages = 50'000;

MemoryDataset read(const TrainOptions& o, CifarSplit split) {
  const bool training = split == CifarSplit::train;
  if (o.data == "synthetic") {
    const std::int64_t images = training ? o.synthetic_train : o.synthetic_test;
    engine::require_memory(fmt::format("{} images", images), static_cast<double>(images) * kCifarImageBytes);
    if (images > kManyImages) log_info(fmt::format("draws {} images", images));  // takes seconds
    return draw_cifar(images, synthetic_seed(o), training ? 0 : kFirstDrawnTestIndex);
  }
  BadSamples bad(allowed_bad_samples(o.bad_samples));
  MemoryDataset data = load_cifar(o.data, split, &bad);
  if (bad.count() > 0)
    log_warning(fmt::format("{} of the {} set left out, the first of them: {}", counted(bad.count(), "image"),
                            training ? "training" : "test", bad.first()));
  return data;
}

void check_batch_size(const TrainOptions& o, std::int64_t images) {
  if (o.batch_size > images)
    throw Error(fmt::format("--batch-size {} is larger than the training set of {}", o.batch_size,
                            counted(images, "image")));
  // All ranks and micro-batches must get equal parts of the last batch.
  const std::int64_t last = images % o.batch_size, parts = std::int64_t{o.ranks} * o.microbatches;
  if (!o.drop_last && last % parts != 0)
    throw Error(
        fmt::format("{} in batches of {} leave a last batch of {}, which is no multiple of {} × {}; "
                    "choose another --batch-size, or --drop-last",
                    counted(images, "image"), o.batch_size, last, counted(o.ranks, "rank"),
                    counted(o.microbatches, "micro-batch")));
}

}  // namespace

std::vector<DatasetPtr> CifarData::trained(int models) const {
  if (of_models.empty()) return {train};
  return {of_models.begin(), of_models.begin() + models};
}

CifarImages read_cifar(const std::vector<TrainOptions>& runs) {
  if (runs.at(0).data == "synthetic")  // whose number is known before they are drawn
    for (const TrainOptions& run : runs) check_batch_size(run, run.synthetic_train);
  CifarImages images{std::make_shared<MemoryDataset>(read(runs.at(0), CifarSplit::train)),
                     std::make_shared<MemoryDataset>(read(runs.at(0), CifarSplit::test))};
  for (const TrainOptions& run : runs) check_batch_size(run, images.train->size());
  return images;
}

CifarData data_of(const TrainOptions& o, const CifarImages& images) {
  const auto& [train, test] = images;
  CifarData data;
  data.classes = train->classes();
  data.train_digest = train->digest();
  data.test_digest = test->digest();
  const auto normalize = std::make_shared<Normalize>(kCifarMean, kCifarStd, dtype_from_name(o.dtype));
  // Transforms are below the shuffle, so their result in an epoch depends on the sample, not on its place.
  const auto ordered = [&](std::uint64_t seed) {
    DatasetPtr all = std::make_shared<ShuffledDataset>(augmented(train, o.augment, seed, normalize), seed);
    if (o.mixup > 0)  // mixes the shuffled batch
      all = std::make_shared<MixupDataset>(std::move(all), o.batch_size, o.mixup, seed);
    return all;
  };
  data.train = ordered(data_seed(o));
  bool differ = false;
  for (int m = 0; m < o.models; ++m) {
    const std::uint64_t seed = data_seed(options_of_model(o, m));
    differ = differ || seed != data_seed(o);
    data.of_models.push_back(seed == data_seed(o) ? data.train : ordered(seed));
  }
  if (!differ) data.of_models.clear();
  data.test = mapped(test, {normalize});
  return data;
}

}  // namespace tandem::apps
