#include "training_log.h"

#include <algorithm>
#include <cmath>

#include <tandem/core/timeline.h>

namespace tandem::apps {

TrainingLog::TrainingLog(const TrainOptions& options, RunDirectory& directory, std::int64_t batches_per_epoch,
                         std::int64_t total_batches, bool terminal)
    : options_(options),
      per_epoch_(batches_per_epoch),
      directory_(directory),
      progress_(total_batches, options.print_every, terminal),
      epoch_(-1),
      in_epoch_(static_cast<std::size_t>(options.models), 0),
      epoch_sum_(in_epoch_) {}

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
    for (auto* of_models : {&epoch_sum_, &in_epoch_}) std::fill(of_models->begin(), of_models->end(), 0);
  }
  const double part = static_cast<double>(result.samples) / static_cast<double>(options_.batch_size);
  for (std::size_t m = 0; m < epoch_sum_.size(); ++m) {
    if (!std::isfinite(result.loss[m])) {
      ++not_finite_;
      continue;
    }
    in_epoch_[m] += part;
    epoch_sum_[m] += part * result.loss[m];
  }
  directory_.metrics(batch, epoch_, result, step * 1e3, static_cast<double>(result.samples) / step);
  progress_.update(batch, result.samples, result.loss[0], last_);
}

std::vector<double> TrainingLog::mean_loss() const {
  std::vector<double> mean;
  for (std::size_t m = 0; m < epoch_sum_.size(); ++m)
    mean.push_back(in_epoch_[m] > 0 ? epoch_sum_[m] / in_epoch_[m] : 0);
  return mean;
}

double TrainingLog::images_per_second() const {
  const double images = static_cast<double>(count_ > 1 ? images_ - first_images_ : images_);
  const double seconds = count_ > 1 ? last_ - first_ : first_ - started_;
  return seconds > 0 ? images / seconds : 0;
}

double TrainingLog::mean_step_ms() const {
  return 1e3 * (count_ > 1 ? (last_ - first_) / static_cast<double>(count_ - 1) : first_ - started_);
}

}  // namespace tandem::apps
