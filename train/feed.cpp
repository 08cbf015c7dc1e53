#include <tandem/train/feed.h>

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include <tandem/core/base/convert.h>
#include <tandem/core/base/error.h>
#include <tandem/core/graph/kernel.h>
#include <tandem/plan/gradient_rules.h>
#include <tandem/train/model_inputs.h>

namespace tandem {
using namespace engine;
namespace {

// Fills an input of a Program with rows of a batch; trace_forward names the inputs.
void fill_rows(Loader& loader, const std::string& name, std::int64_t batch, Rows rows,
               std::span<std::byte> out) {
  if (name == "data") return loader.data(batch, rows, out);
  const std::size_t count = out.size() / sizeof(std::int32_t);
  if (name == "labels") {
    loader.labels(batch, rows, {reinterpret_cast<std::int32_t*>(out.data()), count});
  } else if (name == "weights") {
    loader.weights(batch, rows, {reinterpret_cast<float*>(out.data()), count});
  } else {
    throw Error(fmt::format(
        "the model has an input '{}' of {}; a dataset gives only data, labels and, for several labels per "
        "sample, weights",
        name, counted(std::ssize(out), "byte")));
  }
}

// Pads a dataset to a multiple of the batch size, with zeros of label -1.
class FilledUp final : public Dataset {
 public:
  FilledUp(DatasetPtr source, std::int64_t batch_size)
      : source_(std::move(source)), size_((source_->size() + batch_size - 1) / batch_size * batch_size) {}
  std::int64_t size() const override { return size_; }
  TensorType type() const override { return source_->type(); }
  int classes() const override { return source_->classes(); }
  int labels_per_sample() const override { return source_->labels_per_sample(); }
  void get(std::int64_t epoch, std::int64_t index, Sample& sample) const override {
    index < source_->size() ? source_->get(epoch, index, sample) : fill(sample);
  }
  void get_labels(std::int64_t epoch, std::int64_t index, Sample& sample) const override {
    index < source_->size() ? source_->get_labels(epoch, index, sample) : fill(sample);
  }

 private:
  void fill(Sample& sample) const {
    sample.data.assign(static_cast<std::size_t>(type().bytes()), std::byte{0});
    sample.labels.assign(static_cast<std::size_t>(labels_per_sample()), -1);
    sample.weights.clear();
    if (labels_per_sample() > 1)
      sample.weights.assign(sample.labels.size(), 1.f / static_cast<float>(labels_per_sample()));
  }
  DatasetPtr source_;
  std::int64_t size_;
};

}  // namespace

TrainFeed::TrainFeed(DatasetPtr data, const LoaderOptions& loader, int microbatches,
                     std::vector<std::uint64_t> seeds, Rate rate, Arrived arrived, Skipped skipped)
    : loader_(std::move(data), loader),
      microbatches_(microbatches),
      seeds_(std::move(seeds)),
      rate_(std::move(rate)),
      arrived_(std::move(arrived)),
      skipped_(std::move(skipped)) {}

void TrainFeed::fill(const std::string& name, std::int64_t batch, int microbatch, const RankContext& rank,
                     std::span<std::byte> out) {
  if (name == "seed") return fill_seeds(seeds_, out);
  if (name == "lr")
    return fill_rates(
        seeds_.size(), [&](std::size_t m) { return rate_(m, batch); }, out);
  const Rows rows = share_of(loader_.rows(batch), rank.replica, rank.replicas, microbatch, microbatches_);
  fill_rows(loader_, name, batch, rows, out);
}

void TrainFeed::deliver(const std::string& name, std::int64_t batch, const RankContext& rank,
                        std::span<const std::byte> value) {
  if (rank.replica != 0) return;  // all replicas get the same
  if (name == kUpdated && skipped_ &&
      std::ranges::any_of(value, [](std::byte updated) { return updated == std::byte{0}; }))
    skipped_(batch);
  if (name != "loss") return;
  std::vector<double> loss;
  for (std::size_t m = 0; m < seeds_.size(); ++m)
    loss.push_back(load_element(floating_dtype(value.size(), seeds_.size()), value.data(),
                                static_cast<std::int64_t>(m)));
  arrived_(batch, loss);
}

TestFeed::TestFeed(const DatasetPtr& data, const LoaderOptions& loader, std::vector<std::uint64_t> seeds)
    : samples_(data->size()),
      batch_size_(loader.batch_size),
      loader_(std::make_shared<FilledUp>(data, loader.batch_size), loader),
      seeds_(std::move(seeds)),
      correct_(seeds_.size(), 0) {}

void TestFeed::start() {
  std::ranges::fill(correct_, 0);
  loader_.start(0, batches());
}

std::vector<double> TestFeed::accuracy() const {
  std::vector<double> result;
  for (const std::int64_t c : correct_)
    result.push_back(static_cast<double>(c) / static_cast<double>(samples_));
  return result;
}

void TestFeed::fill(const std::string& name, std::int64_t batch, int, const RankContext& rank,
                    std::span<std::byte> out) {
  if (name == "seed") return fill_seeds(seeds_, out);
  fill_rows(loader_, name, batch, share_of(batch_size_, rank.replica, rank.replicas), out);
}

void TestFeed::deliver(const std::string& name, std::int64_t, const RankContext& rank,
                       std::span<const std::byte> value) {
  if (rank.replica != 0) return;  // all replicas get the same
  for (std::size_t m = 0; m < correct_.size(); ++m) {
    const auto model = static_cast<std::int64_t>(m);
    if (name == "correct")
      correct_[m] += static_cast<std::int64_t>(load_element(DType::i32, value.data(), model));
    if (name == "non_finite" &&
        load_element(floating_dtype(value.size(), correct_.size()), value.data(), model) != 0)
      throw Error(fmt::format(
          "the trained network{} gives values that are not finite; lower the learning rate, or look at the data",
          correct_.size() > 1 ? fmt::format(" of model {}", m) : ""));
  }
}

}  // namespace tandem
