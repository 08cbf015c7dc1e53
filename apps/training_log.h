#pragma once
#include <cstdint>
#include <vector>

#include "cifar_job.h"
#include "progress_line.h"
#include "run_directory.h"
#include "train_options.h"

namespace tandem::apps {

/// Of the losses so far.
struct LossSums {
  std::vector<double> batches,
      sum;  ///< per model, over the epoch; a short batch counts as its part of a whole one
  std::int64_t not_finite = 0;  ///< of all models, over the run: they are in no sum
};

/// What is known of a run from its losses as they arrive: metrics to the run directory, a progress line,
/// means.
class TrainingLog {
 public:
  /// `directory` must outlive it. `terminal`: draw a bar instead of printing lines.
  TrainingLog(const TrainOptions& options, RunDirectory& directory, std::int64_t batches_per_epoch,
              std::int64_t total_batches, bool terminal);
  /// The run goes on after its first `batches`, of which these are the losses.
  void resume(std::int64_t batches, LossSums losses);
  void start();
  void arrived(std::int64_t batch, const CifarTraining::Batch& result);
  void finish() { progress_.finish(); }

  const LossSums& losses() const { return losses_; }
  /// Per model, over the last epoch.
  std::vector<double> mean_loss() const;
  /// Over all batches but the first, which warms up; of the first where it is the only one.
  double mean_step_ms() const;
  double images_per_second() const;

 private:
  const TrainOptions& options_;
  std::int64_t per_epoch_;
  RunDirectory& directory_;
  ProgressLine progress_;
  double started_ = 0, first_ = 0, last_ = 0;  // start and arrivals, seconds
  std::int64_t count_ = 0, images_ = 0, first_images_ = 0, epoch_;
  LossSums losses_;
};

}  // namespace tandem::apps
