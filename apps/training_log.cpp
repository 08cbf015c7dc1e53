#include "training_log.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <tandem/core/timeline.h>

namespace tandem::apps {

TrainingLog::TrainingLog(const TrainOptions& options, RunDirectory& directory, std::int64_t batches_per_epoch,
                         std::int64_t total_batches, bool terminal)
    : options_(options),
      per_epoch_(batches_per_epoch),
      directory_(directory),
      progress_(total_batches, options.print_every, terminal),
      epoch_(-1),
      losses_{std::vector<double>(static_cast<std::size_t>(options.models), 0),
              std::vector<double>(static_cast<std::size_t>(options.models), 0)} {}

void TrainingLog::resume(std::int64_t batches, LossSums losses) {
  epoch_ = batches > 0 ? (batches - 1) / per_epoch_ : -1;
  losses_ = std::move(losses);
  progress_.resume(batches);
}

void TrainingLog::start() {
  started_ = last_ = steady_seconds();
  progress_.start(started_);
}

void TrainingLog::arrived(std::int64_t batch, const CifarTraining::Batch& result) {
  const double step = result.seconds - last_;
  last_ = result.seconds;
  images_ += result.samples;
  if (count_++ == 0) first_ = last_, first_images_ = images_;
  if (batch / per_epoch_ != epoch_) {
    epoch_ = batch / per_epoch_;
    for (auto* of_models : {&losses_.sum, &losses_.batches})
      std::fill(of_models->begin(), of_models->end(), 0);
  }
  const double part = static_cast<double>(result.samples) / static_cast<double>(options_.batch_size);
  for (std::size_t m = 0; m < losses_.sum.size(); ++m) {
    if (!std::isfinite(result.loss[m])) {
      ++losses_.not_finite;
      continue;
    }
    losses_.batches[m] += part;
    losses_.sum[m] += part * result.loss[m];
  }
  directory_.metrics(batch, epoch_, result, step * 1e3, static_cast<double>(result.samples) / step);
  progress_.update(batch, result.samples, result.loss[0], last_);
}

std::vector<double> TrainingLog::mean_loss() const {
  std::vector<double> mean;
  for (std::size_t m = 0; m < losses_.sum.size(); ++m)
    mean.push_back(losses_.batches[m] > 0 ? losses_.sum[m] / losses_.batches[m] : 0);
  return mean;
}

double TrainingLog::images_per_second() const {
  const double images = static_cast<double>(count_ > 1 ? images_ - first_images_ : images_);
  const double seconds = count_ > 1 ? last_ - first_ : first_ - started_;
  return seconds > 0 ? images / seconds : 0;
}

double TrainingLog::mean_step_ms() const {
  if (count_ == 0) return 0;
  return 1e3 * (count_ > 1 ? (last_ - first_) / static_cast<double>(count_ - 1) : first_ - started_);
}

}  // namespace tandem::apps
