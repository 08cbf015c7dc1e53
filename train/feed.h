#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <tandem/core/runtime/host.h>
#include <tandem/datasets/loader.h>

namespace tandem {

/// What a training Program asks for and delivers: the batches of a dataset, a learning rate and a seed per
/// model; losses.
class TrainFeed final : public engine::Host {
 public:
  using Rate = std::function<double(std::size_t model, std::int64_t batch)>;
  using Arrived = std::function<void(std::int64_t batch, const std::vector<double>& loss)>;
  using Skipped = std::function<void(std::int64_t batch)>;
  /// `skipped` is called with batches that changed no state (GradientRules), where stage 0 runs. `arrived` is
  /// called with the losses of each batch, per model, in order of batches, on a lane's thread.
  TrainFeed(DatasetPtr data, const LoaderOptions& loader, int microbatches, std::vector<std::uint64_t> seeds,
            Rate rate, Arrived arrived, Skipped skipped = {});

  Loader& loader() { return loader_; }

  void fill(const engine::HostInput& input) override;
  void deliver(const engine::HostResult& result) override;

 private:
  Loader loader_;
  int microbatches_;
  std::vector<std::uint64_t> seeds_;
  Rate rate_;
  Arrived arrived_;
  Skipped skipped_;
};

/// The samples of a dataset in order, for a Program that evaluates; counts those that are right.
class TestFeed final : public engine::Host {
 public:
  /// The last batch is filled up with zeros of label -1. Workers load ahead as `loader` says.
  TestFeed(const DatasetPtr& data, const LoaderOptions& loader, std::vector<std::uint64_t> seeds);

  std::int64_t batches() const { return loader_.batches_per_epoch(); }
  /// Counts anew.
  void start();
  /// Of the samples that are right, per model: 0 … 1.
  std::vector<double> accuracy() const;

  void fill(const engine::HostInput& input) override;
  /// Throws Error where an output is not finite.
  void deliver(const engine::HostResult& result) override;

 private:
  std::int64_t samples_, batch_size_;
  Loader loader_;
  std::vector<std::uint64_t> seeds_;
  std::vector<std::int64_t> correct_;  // per model
};

}  // namespace tandem
