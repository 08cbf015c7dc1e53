// What a run says and records of its end.
#include <algorithm>
#include <filesystem>
#include <limits>

#include <fmt/format.h>

#include <tandem/core/base/contains.h>
#include <tandem/engine.h>

#include "log.h"
#include "model_texts.h"
#include "sweep.h"
#include "training_run.h"

namespace tandem::apps {
using namespace engine;

void TrainingRun::say_what_it_trains(const Trainer& trainer, const CoreShares& cores) const {
  const TrainOptions& o = options_;
  const std::string what = o.models == 1 ? o.arch : fmt::format("{} models of {}", o.models, o.arch),
                    data = o.data == "synthetic" ? "drawn images" : o.data,
                    threads = counted(cores.threads, "thread");
  const std::string of_each = mpi_               ? fmt::format(" on each of {} ranks", mpi_->size())
                              : cores.lanes == 1 ? ""
                                                 : " per compute lane";
  log_info(fmt::format("trains {} on {}: {} of {}, with {}", what, data,
                       counted(trainer.length().total, "step"), counted(o.batch_size, "image"),
                       threads + of_each));
}

void TrainingRun::report(const EpochResult& end, const Trainer::Peaks& peaks) {
  const Summary summary{.train_loss = end.loss,
                        .test_accuracy = end.accuracy,
                        .skipped = end.losses_not_finite,
                        .images_per_second = end.samples_per_second,
                        .step_ms = end.step_ms,
                        .peak_bytes = peaks.executed,
                        .planned_peak_bytes = peaks.planned,
                        .live_peak_bytes = peaks.live};
  const std::string speed = end.step_ms > 0
                                ? fmt::format("  {:.2f} ms per step  {:.0f} images/s", end.step_ms,
                                              end.samples_per_second)
                                : "";  // an earlier run had trained all batches
  fmt::print("{}  train loss {}{}  peak {:.1f} MB\n", accuracy_line(end.accuracy),
             of_models(summary.train_loss, 4), speed, static_cast<double>(summary.peak_bytes) / 1e6);
  if (failed_save_ != end.batches) {  // else the run is not complete: what it learned is lost
    directory_.summary(summary);
    model_runs_.write_summaries(summary);
  }
  set_ranking(summary.test_accuracy, summary.train_loss);
  if (options_.part.name.empty()) print_ranking(ranking_);
}

// The models of a sweep, for which this can be one of several runs; without numbers if the run has diverged.
void TrainingRun::set_ranking(const std::vector<double>& accuracy, const std::vector<double>& loss) {
  const std::string& part = options_.part.name;
  if (!is_main() || (!is_sweep() && part.empty())) return;
  const bool diverged = accuracy.empty();
  ranking_ = model_runs_.ranking();
  if (!is_sweep())
    ranking_ = {{"", "", command_of_model(begin_.options, 0), diverged ? 0 : accuracy[0],
                 diverged ? std::numeric_limits<double>::quiet_NaN() : loss.at(0)}};
  std::string own = fmt::format("batch-size {}", options_.batch_size);
  const auto is_swept = [&](const char* flag) {
    return is_sweep() &&
           std::ranges::any_of(options_.swept[0], [&](const auto& s) { return s.first == flag; });
  };
  if (!contains(options_.given, std::string("lr")) && !is_swept("lr") && !is_swept("opt"))
    own += fmt::format(", lr {} by default", options_.lr[0]);
  for (RankedModel& model : ranking_) {
    if (diverged && model.fate.empty()) {
      model.diverged = true;
      model.fate = "diverged";
    }
    if (part.empty()) continue;
    model.name = model.name.empty() ? part : fmt::format("{}: {}", part, model.name);
    model.own = model.own.empty() ? own : fmt::format("{}, {}", own, model.own);
  }
}

void TrainingRun::say_where_it_is(std::int64_t batches) const {
  if (directory_.keeps()) {
    const std::string checkpoint =
        (std::filesystem::path(checkpoints_of(options_.output)) / checkpoint_name(batches)).string();
    fmt::print("the run is in {}, its weights in {}/{}\n", options_.output, checkpoint,
               options_.models == 1 ? "model.safetensors" : "model-K.safetensors");
  }
  if (!options_.trace.empty())
    fmt::print("its trace is in {}: open https://ui.perfetto.dev and drop it on the page\n", options_.trace);
}

}  // namespace tandem::apps
