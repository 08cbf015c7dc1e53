#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include <tandem/core/runtime/host.h>
#include <tandem/datasets/loader.h>

namespace tandem {

/// The Host of a training Program: gives it the batches of a dataset, or of one per model, and, per model, a
/// learning rate and a seed, and takes its losses.
class TrainFeed final : public engine::Host {
 public:
  using Rate = std::function<double(std::size_t model, std::int64_t batch)>;
  using Arrived = std::function<void(std::int64_t batch, const std::vector<double>& loss)>;
  using Active = std::function<std::vector<char>()>;
  using Skipped = std::function<void(std::int64_t batch)>;
  using Measured = std::function<void(const engine::HostResult&)>;
  /// Calls `arrived` with the losses of each batch, per model, in order of batches, on a lane's thread. Calls
  /// `skipped`, in the process that runs stage 0, with each batch that changed no state (GradientRules); and
  /// `measured` with each result kPredictionResult, perhaps while `arrived` runs for a later batch.
  TrainFeed(const std::vector<DatasetPtr>& data, const LoaderOptions& loader, int microbatches,
            std::vector<std::uint64_t> seeds, Rate rate, Arrived arrived, Skipped skipped = {},
            Measured measured = {});
  /// From here on `active` says which models are updated, if the Program asks; before, all are.
  void set_active(Active active) { active_ = std::move(active); }

  std::int64_t batches_per_epoch() const { return loaders_[0]->batches_per_epoch(); }
  /// Samples in `batch`.
  std::int64_t rows(std::int64_t batch) const { return loaders_[0]->rows(batch); }
  /// Begins with a batch, as Loader::start does; results of batches that were not finished are forgotten.
  void start(std::int64_t first, std::int64_t end);
  /// As long as it exists, losses and skipped updates are ignored.
  class IgnoresResults {
   public:
    explicit IgnoresResults(TrainFeed& feed) : feed_(feed) { feed.ignores_results_ = true; }
    ~IgnoresResults() { feed_.ignores_results_ = false; }
    IgnoresResults(const IgnoresResults&) = delete;
    IgnoresResults& operator=(const IgnoresResults&) = delete;

   private:
    TrainFeed& feed_;
  };

  void fill(const engine::HostInput& input) override;
  void deliver(const engine::HostResult& result) override;

 private:
  void fill_batch(const engine::HostInput& input);

  std::vector<std::unique_ptr<Loader>> loaders_;  // one for all models, or one per model
  int microbatches_;
  Active active_;
  bool ignores_results_ = false;
  std::vector<std::uint64_t> seeds_;
  /// Of a batch: the losses that arrays of models have delivered so far.
  struct Losses {
    std::vector<double> of_models;
    std::size_t delivered = 0;
  };
  std::mutex delivering_;                  // guards the rest: arrays side by side deliver at once
  std::map<std::int64_t, Losses> losses_;  // per batch
  Rate rate_;
  Arrived arrived_;
  Skipped skipped_;
  Measured measured_;
};

/// The Host of an evaluation Program: gives it the samples of a dataset in order, and counts the correct
/// ones.
class TestFeed final : public engine::Host {
 public:
  /// Pads the last batch with zeros of label -1. Workers load ahead as `loader` says.
  TestFeed(const DatasetPtr& data, const LoaderOptions& loader, std::vector<std::uint64_t> seeds);

  std::int64_t batches() const { return loader_.batches_per_epoch(); }
  /// Begins a new count of the models that are `active`, one per model; of all if it is empty.
  void start(std::vector<char> active = {});
  /// Returns the fraction of correct samples, 0 … 1, per model; NaN for one that is not active, or whose
  /// outputs were not finite.
  std::vector<double> accuracy() const;
  /// From here on outputs that are not finite are noted, not an Error.
  void note_non_finite() { notes_ = true; }

  void fill(const engine::HostInput& input) override;
  /// Throws Error if an output of an active model is not finite, unless that is only noted.
  void deliver(const engine::HostResult& result) override;

 private:
  std::int64_t samples_, batch_size_;
  Loader loader_;
  std::vector<std::uint64_t> seeds_;
  std::vector<std::int64_t> correct_;  // per model
  std::vector<char> active_;           // per model
  bool notes_ = false;
};

}  // namespace tandem
