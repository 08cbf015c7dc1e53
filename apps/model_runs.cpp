#include "model_runs.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <system_error>

#include <fmt/format.h>

#include <tandem/core/base/error.h>
#include <tandem/core/base/files.h>
#include <tandem/core/graph/state_dict.h>
#include <tandem/tandem.h>

#include "log.h"
#include "recipe.h"
#include "resume.h"
#include "sweep.h"

namespace tandem::apps {
using namespace engine;
namespace {

std::vector<double> of(const std::vector<double>& all, std::size_t m) {
  return m < all.size() ? std::vector{all[m]} : std::vector<double>();
}

// What a run of model `m` alone would save.
CheckpointResult of(const CheckpointResult& all, std::size_t m, std::int64_t models,
                    const TrainOptions& one) {
  const Optimizer optimizer = model_options_of(one).optimizer;
  CheckpointResult result{all.progress, {}, of(all.accuracy, m)};
  for (const auto& [path, tensor] : all.state)
    if (keeps(optimizer, path))
      result.state.emplace(path, unstack_state(tensor, static_cast<std::int64_t>(m), models));
  TrainProgress& p = result.progress;
  p.losses.batches = of(p.losses.batches, m);
  p.losses.sum = of(p.losses.sum, m);
  p.losses.not_finite = 0;
  p.stopped.clear();
  p.accuracies.clear();
  if (m < all.progress.accuracies.size()) {
    p.accuracies = {all.progress.accuracies[m]};
    p.best_accuracy = p.accuracies[0].best;
  }
  return result;
}

}  // namespace

ModelRuns::ModelRuns(const TrainOptions& o, bool in_place) {
  if (o.swept.empty()) return;
  for (int m = 0; m < o.models; ++m) {
    Model& model = models_.emplace_back();
    if (o.output.empty()) continue;
    model.options.output = (std::filesystem::path(o.output) / fmt::format("model-{}", m)).string();
    model.options.force = o.force;
    model.options.tensorboard = o.tensorboard;
    if (std::error_code none; std::filesystem::is_symlink(model.options.output, none))
      throw Error(fmt::format("'{}' is a link: a sweep makes the directories of its models itself; remove it",
                              model.options.output));
    model.directory = std::make_unique<RunDirectory>(model.options);
    model.directory->claim(model.options, in_place);
  }
}

void ModelRuns::remove_empty_directories() const {
  for (const Model& model : models_)
    if (model.directory) model.directory->remove_if_empty();
}

void ModelRuns::describe(const RunState& begin) {
  const TrainOptions& o = begin.options;
  const TrainProgress& progress = begin.progress;
  for (std::size_t m = 0; m < models_.size(); ++m) {
    Model& model = models_[m];
    const int number = static_cast<int>(m);
    model.options = options_of_model(o, number);
    model.command = command_of_model(o, number);
    for (const auto& [flag, value] : o.swept[m])
      model.own += fmt::format("{}{} {}", model.own.empty() ? "" : ", ", flag, value);
    if (m < progress.accuracies.size()) {
      model.accuracy = progress.accuracies[m].last;
      model.loss = progress.accuracies[m].loss;
    }
    for (const StoppedModel& s : progress.stopped)
      if (s.model == number) {
        model.stopped = s.batch;
        model.diverged = s.diverged;
        model.is_saved = true;
      }
  }
}

void ModelRuns::start(const RunState& begin,
                      const std::function<void(std::int64_t, const std::string&)>& failed) {
  describe(begin);
  const TrainOptions& o = begin.options;
  for (std::size_t m = 0; m < models_.size(); ++m) {
    Model& model = models_[m];
    TrainOptions& one = model.options;
    one.output =
        o.output.empty() ? "" : (std::filesystem::path(o.output) / fmt::format("model-{}", m)).string();
    one.trace.clear();
    one.command_line = model.command;
    one.config = config_of_model(o, static_cast<int>(m));
    if (!model.directory) continue;
    model.begin = begin;
    model.begin.options = one;
    model.begin.arguments = to_json(one);
    model.directory->start(one, begin.progress.batch);
    model.records = model.directory->callbacks();
    const Retention retention{o.keep, o.keep_every, o.keep_best};
    model.writer =
        std::make_unique<CheckpointWriter>(CheckpointStore(checkpoints_of(one.output), retention), failed);
  }
}

Callbacks ModelRuns::callbacks() {
  if (models_.empty()) return {};
  return {.batch = [this](const BatchResult& b) { batch(b); },
          .end_epoch = [this](const EpochResult& e) { epoch(e, false); },
          .end = [this](const EpochResult& e) { epoch(e, true); },
          .stopped =
              [this](const StoppedModel& s) {
                Model& model = models_.at(static_cast<std::size_t>(s.model));
                model.stopped = s.batch;
                model.diverged = s.diverged;
              }};
}

void ModelRuns::batch(const BatchResult& all) {
  for (const int number : all.models) {
    const auto m = static_cast<std::size_t>(number);
    Model& model = models_[m];
    if (model.stopped >= 0 && model.stopped < all.batch) continue;
    if (!model.records.batch || (model.stopped >= 0 && !model.diverged)) continue;
    BatchResult b = all;
    b.loss = of(all.loss, m);
    b.lr = of(all.lr, m);
    b.models = {0};
    b.is_last_turn = true;
    b.prediction.clear();
    model.records.batch(b);
  }
}

void ModelRuns::epoch(const EpochResult& all, bool is_end) {
  for (std::size_t m = 0; m < models_.size(); ++m) {
    Model& model = models_[m];
    const std::vector<double> accuracy = of(all.accuracy, m), loss = of(all.loss, m);
    if (!accuracy.empty() && std::isfinite(accuracy[0])) model.accuracy = accuracy[0];
    if (!loss.empty() && std::isfinite(loss[0])) model.loss = loss[0];
    const auto& record = is_end ? model.records.end : model.records.end_epoch;
    if (!record || model.stopped >= 0) continue;
    EpochResult e = all;
    e.loss = loss;
    e.lr = of(all.lr, m);
    e.accuracy = accuracy;
    record(e);
  }
}

void ModelRuns::save(const CheckpointResult& all, nn::ModuleBase& network, std::int64_t epoch) {
  if (!writes()) return;
  for (std::size_t m = 0; m < models_.size(); ++m) {
    Model& model = models_[m];
    if (std::ranges::find(all.progress.stopped, static_cast<int>(m), &StoppedModel::model) ==
        all.progress.stopped.end()) {  // it trains; also if it had stopped, and its turn has gone back
      model.stopped = -1;
      model.diverged = false;
    }
    if (model.diverged || (model.stopped >= 0 && model.is_saved)) continue;
    RunState now = model.begin;
    now.epoch = epoch;
    const CheckpointResult one = of(all, m, std::ssize(models_), model.options);
    try {  // a sweep that was killed can have saved this model alone, and has gone back behind that
      CheckpointStore(checkpoints_of(model.options.output)).remove_after(all.progress.batch - 1);
    } catch (const Error& e) {  // then the save fails, which is told
      log_error(e.what());
    }
    model.writer->save(all.progress.batch, checkpoint_files(network, one, 1, notes_of(now)),
                       one.accuracy.empty() ? std::nullopt : std::optional(one.accuracy[0]));
    model.is_saved = model.stopped >= 0;
  }
}

void ModelRuns::wait() {
  for (Model& model : models_)
    if (model.writer) model.writer->wait();
}

void ModelRuns::write_summaries(const Summary& summary) {
  for (Model& model : models_) {
    Summary one = summary;
    one.train_loss = {model.loss};
    one.test_accuracy = {model.accuracy};
    one.skipped = 0;
    if (model.directory && model.stopped < 0) model.directory->summary(one);
  }
}

std::vector<RankedModel> ModelRuns::ranking() const {
  std::vector<RankedModel> ranking;
  for (std::size_t m = 0; m < models_.size(); ++m) {
    const Model& model = models_[m];
    ranking.push_back(
        {fmt::format("model {}", m), model.own, model.command, model.accuracy, model.loss, model.diverged});
    if (model.diverged)
      ranking.back().fate = fmt::format("diverged at step {}", model.stopped);
    else if (model.stopped >= 0)
      ranking.back().fate = fmt::format("pruned after {}", counted(model.stopped, "step"));
  }
  return ranking;
}

void print_ranking(std::vector<RankedModel> models) {
  std::ranges::stable_sort(models, [](const RankedModel& a, const RankedModel& b) {
    if (a.diverged != b.diverged) return b.diverged;
    return a.accuracy != b.accuracy ? a.accuracy > b.accuracy : a.loss < b.loss;
  });
  for (std::size_t rank = 0; rank < models.size(); ++rank) {
    const RankedModel& model = models[rank];
    fmt::print("{:>3}. {}  test accuracy {}  train loss {}  {}{}{}\n     {}\n", rank + 1, model.name,
               model.diverged ? "-" : fmt::format("{:.2f} %", 100 * model.accuracy),
               std::isnan(model.loss) ? "-" : fmt::format("{:.4f}", model.loss), model.own,
               model.fate.empty() ? "" : "; ", model.fate, model.command);
  }
}

}  // namespace tandem::apps
