#include "training_log.h"

#include <algorithm>

#include <tandem/core/timeline.h>

namespace tandem::apps {

TrainingLog::TrainingLog(const TrainOptions& options, RunDirectory& directory, std::int64_t batches_per_epoch,
                         std::int64_t total_batches, bool terminal)
    : options_(options),
      per_epoch_(batches_per_epoch),
      directory_(directory),
      progress_(total_batches, options.print_every, options.batch_size, terminal),
      epoch_sum_(static_cast<std::size_t>(options.models), 0) {}

void TrainingLog::start() {
  started_ = last_ = steady_seconds();
  progress_.start(started_);
}

void TrainingLog::arrived(std::int64_t batch, const CifarTraining::Batch& result) {
  const double step = result.seconds - last_;
  last_ = result.seconds;
  if (count_++ == 0) first_ = last_;
  if (batch / per_epoch_ != epoch_) {
    epoch_ = batch / per_epoch_;
    std::fill(epoch_sum_.begin(), epoch_sum_.end(), 0);
    in_epoch_ = 0;
  }
  ++in_epoch_;
  for (std::size_t m = 0; m < epoch_sum_.size(); ++m) epoch_sum_[m] += result.loss[m];
  directory_.metrics(batch, epoch_, result, step * 1e3, static_cast<double>(options_.batch_size) / step);
  progress_.update(batch, result.loss[0], last_);
}

std::vector<double> TrainingLog::mean_loss() const {
  std::vector<double> mean;
  for (double sum : epoch_sum_)
    mean.push_back(sum / static_cast<double>(std::max<std::int64_t>(in_epoch_, 1)));
  return mean;
}

double TrainingLog::mean_step_ms() const {
  return 1e3 * (count_ > 1 ? (last_ - first_) / static_cast<double>(count_ - 1) : first_ - started_);
}

}  // namespace tandem::apps
