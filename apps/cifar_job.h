#pragma once
#include <algorithm>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <tandem/core/host.h>
#include <tandem/datasets/loader.h>
#include <tandem/nn/module.h>
#include <tandem/nn/schedules.h>

#include "train_options.h"

namespace tandem::apps {

/// Why a run ended that a signal ended: "interrupted" (SIGINT), "terminated" (SIGTERM).
const char* interruption(int signal);
/// The signal, here or on another rank, that is behind an error; 0 if none is.
int signal_behind(const std::exception& error);

/// The forward graph of a classifier on (n,32,32,3) images: results "loss" when training, "correct" (i32, how
/// many of n) when not.
Graph trace_classifier(nn::Module& model, std::int64_t n, DType dtype, bool training);

/// What a training Program asks for and delivers: samples in an order shuffled anew each epoch, the same for
/// every number of ranks and micro-batches; learning rates by schedule; losses.
class CifarTraining final : public Host {
 public:
  struct Batch {
    std::vector<double> loss, lr;  ///< per model
    std::int64_t samples = 0;
    double seconds = 0;  ///< when the loss arrived, on a steady clock
  };
  /// `data` must hold a batch at least. `arrived` is called with each batch whose loss is there, in order of
  /// batches. `ahead`: who loads what before it is asked for; by default nobody.
  CifarTraining(DatasetPtr data, const TrainOptions& options,
                std::function<void(std::int64_t, const Batch&)> arrived, LoaderOptions ahead = {});

  std::int64_t batches_per_epoch() const { return loader_.batches_per_epoch(); }
  std::int64_t total_batches() const;
  /// In `batch`: the batch size, or fewer in the last of an epoch.
  std::int64_t samples(std::int64_t batch) const { return loader_.rows(batch); }
  /// Begins to load ahead: `batch` is the first that will be asked for.
  void start(std::int64_t batch) { loader_.start(batch, total_batches()); }

  void fill(const std::string& name, std::int64_t batch, int microbatch, const RankContext& rank,
            std::span<std::byte> out) override;
  void deliver(const std::string& name, std::int64_t batch, const RankContext& rank,
               std::span<const std::byte> value) override;

 private:
  double rate(std::size_t model, std::int64_t batch) const;
  const TrainOptions& options_;
  std::function<void(std::int64_t, const Batch&)> arrived_;
  DType dtype_;
  Loader loader_;
  std::vector<nn::LrSchedule> schedules_;  // per model
};

/// Test images in order, the last batch filled up with label −1; counts what was right.
class CifarEvaluation final : public Host {
 public:
  CifarEvaluation(DatasetPtr data, const TrainOptions& options, std::int64_t batch_size);
  std::int64_t batches() const { return loader_.batches_per_epoch(); }
  /// Counts anew.
  void start() { std::ranges::fill(correct_, 0); }
  std::vector<double> accuracy() const;  ///< per model, 0 … 1

  void fill(const std::string& name, std::int64_t batch, int microbatch, const RankContext& rank,
            std::span<std::byte> out) override;
  void deliver(const std::string& name, std::int64_t batch, const RankContext& rank,
               std::span<const std::byte> value) override;

 private:
  const TrainOptions& options_;
  std::int64_t batch_size_, images_;
  Loader loader_;
  std::vector<std::int64_t> correct_;
};

}  // namespace tandem::apps
