#include <tandem/train/feed.h>

#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include <tandem/core/base/contains.h>
#include <tandem/core/graph/kernel.h>
#include <tandem/datasets/dataset_adapter.h>
#include <tandem/train/model_inputs.h>

namespace tandem {
using namespace engine;
namespace {

// Fills an input of trace_forward's graph with some rows of its batch.
void fill_rows(Loader& loader, const HostInput& in, Rows rows) {
  if (in.name == kDataInput) return loader.data(in.batch, rows, in.bytes);
  if (in.name == kLabelsInput) return loader.labels(in.batch, rows, in.as<std::int32_t>());
  if (in.name == kWeightsInput) return loader.weights(in.batch, rows, in.as<float>());
  throw Error(fmt::format(
      "the model has an input '{}' of {}; a dataset gives only data, labels and, for several labels per "
      "sample, weights",
      in.name, to_string(in.type)));
}

// Pads a dataset to a multiple of the batch size, with zeros of label -1.
class FilledUp final : public DatasetAdapter {
 public:
  FilledUp(const DatasetPtr& source, std::int64_t batch_size)
      : DatasetAdapter(source), size_((source->size() + batch_size - 1) / batch_size * batch_size) {}
  std::int64_t size() const override { return size_; }
  void get(std::int64_t epoch, std::int64_t index, Sample& sample) const override {
    index < source().size() ? source().get(epoch, index, sample) : fill(sample);
  }
  void get_labels(std::int64_t epoch, std::int64_t index, Sample& sample) const override {
    index < source().size() ? source().get_labels(epoch, index, sample) : fill(sample);
  }

 private:
  void fill(Sample& sample) const {
    sample.data.assign(static_cast<std::size_t>(type().bytes()), std::byte{0});
    sample.labels.assign(static_cast<std::size_t>(labels_per_sample()), -1);
    sample.weights.clear();
    if (labels_per_sample() > 1)
      sample.weights.assign(sample.labels.size(), 1.f / static_cast<float>(labels_per_sample()));
  }
  const std::int64_t size_;
};

}  // namespace

TrainFeed::TrainFeed(const std::vector<DatasetPtr>& data, const LoaderOptions& loader, int microbatches,
                     std::vector<std::uint64_t> seeds, Rate rate, Arrived arrived, Skipped skipped,
                     Measured measured)
    : microbatches_(microbatches),
      seeds_(std::move(seeds)),
      rate_(std::move(rate)),
      arrived_(std::move(arrived)),
      skipped_(std::move(skipped)),
      measured_(std::move(measured)) {
  for (const DatasetPtr& d : data) loaders_.push_back(std::make_unique<Loader>(d, loader));
  active_ = [models = seeds_.size()] { return std::vector<char>(models, 1); };
}

void TrainFeed::start(std::int64_t first, std::int64_t end) {
  const std::lock_guard lock(delivering_);
  losses_.clear();
  for (const auto& loader : loaders_) loader->start(first, end);
}

void TrainFeed::fill(const HostInput& in) {
  if (in.name == kSeedInput) return fill_seeds(seeds_, in);
  if (in.name == kLearningRateInput) {
    std::vector<double> rates;
    for (std::size_t m = 0; m < seeds_.size(); ++m) rates.push_back(rate_(m, in.batch));
    return fill_rates(rates, in);
  }
  if (in.name == kActiveInput) return fill_active(active_(), in);
  fill_batch(in);
}

// The batch that all models share, or one after the other those of the models whose input it is.
void TrainFeed::fill_batch(const HostInput& in) {
  const Rows share =
      share_of(rows(in.batch), in.rank.replica, in.rank.replicas, in.microbatch, microbatches_);
  if (loaders_.size() == 1) return fill_rows(*loaders_[0], in, share);
  const std::size_t first = static_cast<std::size_t>(in.models.first),
                    count = in.models.is_all() ? loaders_.size() : static_cast<std::size_t>(in.models.count),
                    bytes = in.bytes.size() / count;
  for (std::size_t m = 0; m < count; ++m)
    fill_rows(*loaders_[first + m],
              {in.name, in.type, in.batch, in.microbatch, in.rank, in.bytes.subspan(m * bytes, bytes)},
              share);
}

void TrainFeed::deliver(const HostResult& result) {
  if (result.rank.replica != 0 || ignores_results_) return;  // all replicas deliver the same
  const std::lock_guard lock(delivering_);
  if (result.name == kUpdatedResult && skipped_ && contains(result.values(), 0)) skipped_(result.batch);
  if (result.name == kPredictionResult && measured_) measured_(result);
  if (result.name != kLossResult) return;
  Losses& losses = losses_[result.batch];
  losses.of_models.resize(seeds_.size());
  const std::vector<double> values = result.values();
  std::ranges::copy(values, losses.of_models.begin() + result.models.first);
  losses.delivered += values.size();
  if (losses.delivered < seeds_.size()) return;
  const std::vector<double> all = std::move(losses_.extract(result.batch).mapped().of_models);
  arrived_(result.batch, all);
}

TestFeed::TestFeed(const DatasetPtr& data, const LoaderOptions& loader, std::vector<std::uint64_t> seeds)
    : samples_(data->size()),
      batch_size_(loader.batch_size),
      loader_(std::make_shared<FilledUp>(data, loader.batch_size), loader),
      seeds_(std::move(seeds)),
      correct_(seeds_.size(), 0),
      active_(seeds_.size(), 1) {}

void TestFeed::start(std::vector<char> active) {
  if (!active.empty()) active_ = std::move(active);
  std::ranges::fill(correct_, 0);
  loader_.start(0, batches());
}

std::vector<double> TestFeed::accuracy() const {
  std::vector<double> result;
  for (std::size_t m = 0; m < correct_.size(); ++m)
    result.push_back(active_[m] ? static_cast<double>(correct_[m]) / static_cast<double>(samples_)
                                : std::numeric_limits<double>::quiet_NaN());
  return result;
}

void TestFeed::fill(const HostInput& in) {
  if (in.name == kSeedInput) return fill_seeds(seeds_, in);
  fill_rows(loader_, in, share_of(batch_size_, in.rank.replica, in.rank.replicas));
}

void TestFeed::deliver(const HostResult& result) {
  if (result.rank.replica != 0) return;  // all replicas deliver the same
  const std::vector<double> values = result.values();
  for (std::size_t m = 0; m < correct_.size(); ++m) {
    if (result.name == kCorrectResult) correct_[m] += static_cast<std::int64_t>(values.at(m));
    if (result.name != kNonFiniteResult || !active_[m] || values.at(m) == 0) continue;
    if (notes_)
      active_[m] = 0;
    else
      throw Error(fmt::format(
          "the trained network{} gives values that are not finite; lower the learning rate, or look at the data",
          correct_.size() > 1 ? fmt::format(" of model {}", m) : ""));
  }
}

}  // namespace tandem
