#include <tandem/train/train_checkpoint.h>

#include <limits>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tandem/core/base/json_input.h>
#include <tandem/core/graph/state_dict.h>
#include <tandem/nn/safetensors.h>
#include <tandem/nn/torch_layout.h>
#include <tandem/nn/weights.h>

namespace tandem {
using namespace engine;
namespace {

constexpr const char* kOptimizerFile = "optimizer.safetensors";
constexpr double kAnyLoss = std::numeric_limits<double>::max();

std::string model_file(int model, int models) {
  return models == 1 ? "model.safetensors" : fmt::format("model-{}.safetensors", model);
}

// Written by hand, because nlohmann's objects end the process if there is no memory.
std::string to_json(const TrainProgress& p, const RunNotes& notes) {
  std::string text = fmt::format(
      R"({{"batch": {},
 "losses": {{"batches": [{}], "sum": [{}], "not_finite": {}}},
 "best_accuracy": {}, "epochs_since_best": {}, "rollbacks": {})",
      p.batch, fmt::join(p.losses.batches, ", "), fmt::join(p.losses.sum, ", "), p.losses.not_finite,
      p.best_accuracy, p.epochs_since_best, p.rollbacks);
  std::vector<std::string> stopped, accuracies;
  for (const StoppedModel& m : p.stopped)
    stopped.push_back(
        fmt::format(R"({{"model": {}, "batch": {}, "diverged": {}}})", m.model, m.batch, m.diverged));
  for (const auto& a : p.accuracies)
    accuracies.push_back(fmt::format(R"({{"sum": {}, "best": {}, "epochs": {}, "last": {}, "loss": {}}})",
                                     a.sum, a.best, a.epochs, a.last, a.loss));
  if (!stopped.empty()) text += fmt::format(",\n \"stopped\": [{}]", fmt::join(stopped, ", "));
  if (!accuracies.empty()) text += fmt::format(",\n \"accuracies\": [{}]", fmt::join(accuracies, ", "));
  for (const auto& [key, value] : notes) text += fmt::format(",\n \"{}\": {}", key, value);
  return text + "}\n";
}

constexpr std::int64_t kMostCount = 1'000'000'000'000'000;  // what a run can add to

// Keys that older versions did not write have their defaults.
TrainProgress progress_from_json(const std::string& text) {
  const JsonInput j = JsonInput::parse("run state", text), losses = j["losses"].required();
  losses.require_keys({"batches", "sum", "not_finite"});
  TrainProgress p;
  p.batch = j["batch"].required().integer<std::int64_t>(0, 0, kMostCount);
  for (const JsonInput& value : losses["batches"].required().items())
    p.losses.batches.push_back(value.number(0, 0, kAnyLoss));
  for (const JsonInput& value : losses["sum"].required().items())
    p.losses.sum.push_back(value.number(0, -kAnyLoss, kAnyLoss));
  p.losses.not_finite = losses["not_finite"].required().integer<std::int64_t>(0, 0, kMostCount);
  p.best_accuracy = j["best_accuracy"].number(p.best_accuracy, -1, 1);
  p.epochs_since_best = j["epochs_since_best"].integer<std::int64_t>(0, 0, kMostCount);
  p.rollbacks = j["rollbacks"].integer<std::int64_t>(0, 0, kMostCount);
  for (const JsonInput& entry : j["stopped"].items()) {
    entry.require_keys({"model", "batch", "diverged"});
    p.stopped.push_back({entry["model"].required().integer(0, 0),
                         entry["batch"].required().integer<std::int64_t>(0, 0, kMostCount),
                         entry["diverged"].flag(false)});
  }
  for (const JsonInput& entry : j["accuracies"].items()) {
    entry.require_keys({"sum", "best", "epochs", "last", "loss"});
    p.accuracies.push_back({entry["sum"].required().number(0, 0, kAnyLoss),
                            entry["best"].required().number(0, 0, 1),
                            entry["epochs"].required().integer<std::int64_t>(0, 0, kMostCount),
                            entry["last"].number(0, 0, 1), entry["loss"].number(0, -kAnyLoss, kAnyLoss)});
  }
  return p;
}

// The data that the files of one checkpoint share until they are written, possibly on another thread.
struct Snapshot {
  StateDict state, rest;  // rest: the part of state that belongs to no model
  std::vector<std::map<std::string, nn::TensorSource>> models;
  TrainProgress progress;
  RunNotes notes;
};

// Throws if the text cannot be read back, for example because a sum of losses has overflowed.
void write_run(const Snapshot& s, const Sink& sink) {
  const std::string text = to_json(s.progress, s.notes);
  progress_from_json(text);
  sink(std::as_bytes(std::span(text)));
}

// Before the first loss, both lists are empty.
void check_models(const LossSums& losses, int models) {
  if (losses.batches.size() != losses.sum.size())
    throw Error(fmt::format("it has sums of losses for {}, but numbers of batches for {}",
                            counted(std::ssize(losses.sum), "model"), losses.batches.size()));
  if (!losses.sum.empty() && std::ssize(losses.sum) != models)
    throw Error(
        fmt::format("it has losses for {}, not for {}", counted(std::ssize(losses.sum), "model"), models));
}

}  // namespace

std::vector<CheckpointFile> checkpoint_files(nn::ModuleBase& model, const CheckpointResult& result,
                                             int models, const RunNotes& notes) {
  progress_from_json(to_json({}, notes));  // throws now if a note is wrong
  const auto snapshot =
      std::make_shared<Snapshot>(Snapshot{result.state, result.state, {}, result.progress, notes});
  for (const auto& [path, parameter] : model.named_parameters()) snapshot->rest.erase(path);
  std::vector<CheckpointFile> files;
  for (int m = 0; m < models; ++m) {
    snapshot->models.push_back(nn::torch_sources(model, snapshot->state, result.progress.batch, m, models));
    files.push_back({model_file(m, models), [snapshot, m](const Sink& sink) {
                       nn::write_safetensors(snapshot->models[static_cast<std::size_t>(m)], sink);
                     }});
  }
  files.push_back(
      {kOptimizerFile, [snapshot](const Sink& sink) { nn::write_safetensors(snapshot->rest, sink); }});
  files.push_back({kRunFile, [snapshot](const Sink& sink) { write_run(*snapshot, sink); }});
  return files;
}

TrainProgress read_progress(const Checkpoint& checkpoint, int models) {
  const std::string file = checkpoint.file(kRunFile), text = read_text("checkpoint file", file);
  try {
    TrainProgress progress = progress_from_json(text);
    if (progress.batch != checkpoint.step)
      throw Error(
          fmt::format("it is of batch {}, but the checkpoint is of {}", progress.batch, checkpoint.step));
    check_models(progress.losses, models);
    for (const StoppedModel& m : progress.stopped)
      if (m.model >= models)
        throw Error(fmt::format("it has a model {} that stopped, of {}", m.model, models));
    if (!progress.accuracies.empty() && std::ssize(progress.accuracies) != models)
      throw Error(fmt::format("it has accuracies of {}, not of {}",
                              counted(std::ssize(progress.accuracies), "model"), models));
    return progress;
  } catch (const Error& e) {
    throw Error(fmt::format("'{}' is not the progress of such a run: {}", file, e.what()));
  }
}

StateDict read_model_state(nn::ModuleBase& model, const Checkpoint& checkpoint, int models) {
  std::vector<StateDict> states;
  for (int m = 0; m < models; ++m)
    states.push_back(nn::read_weights(model, checkpoint.file(model_file(m, models)), {.convert = false}));
  return stack_states(states);
}

StateDict read_state(nn::ModuleBase& model, const Checkpoint& checkpoint, int models) {
  StateDict state = read_model_state(model, checkpoint, models);
  const nn::SafetensorsFile rest(checkpoint.file(kOptimizerFile));
  for (const auto& [name, entry] : rest.tensors())
    if (!state.emplace(name, rest.read(name)).second)
      throw Error(fmt::format("'{}' holds '{}', which belongs to the model", rest.path(), name));
  return state;
}

}  // namespace tandem
