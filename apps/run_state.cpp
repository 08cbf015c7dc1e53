#include "run_state.h"

#include <algorithm>
#include <array>
#include <memory>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <tandem/autograd/batch.h>
#include <tandem/core/error.h>
#include <tandem/core/json_input.h>
#include <tandem/nn/safetensors.h>
#include <tandem/nn/torch_layout.h>
#include <tandem/nn/weights.h>

#include "recipe.h"
#include "run_directory.h"

namespace tandem::apps {
namespace {

using nlohmann::json;
constexpr const char* kRun = "run.json";
constexpr double kAnyLoss = 1e300;
constexpr const char* kOptimizer = "optimizer.safetensors";

std::string model_file(int model, int models) {
  return models == 1 ? "model.safetensors" : fmt::format("model-{}.safetensors", model);
}

// Not by nlohmann's objects, which end the process where there is no memory.
std::string to_json(const RunState& run) {
  const TrainProgress& p = run.progress;
  return fmt::format(
      R"({{"batch": {}, "epoch": {},
 "losses": {{"batches": [{}], "sum": [{}], "not_finite": {}}},
 "best_accuracy": {}, "epochs_since_best": {}, "rollbacks": {},
 "train_data": "{}", "test_data": "{}",
 "arguments": {}}}
)",
      p.batch, run.epoch, fmt::join(p.losses.batches, ", "), fmt::join(p.losses.sum, ", "),
      p.losses.not_finite, p.best_accuracy, p.epochs_since_best, p.rollbacks, run.train_data, run.test_data,
      run.arguments);
}

// What is shared by the files of one checkpoint, on the thread that writes them.
struct Snapshot {
  std::map<std::string, Tensor> state;
  std::shared_ptr<nn::Module> network;
  RunState run;
};

void write_model(const Snapshot& s, int model, const Sink& sink) {
  nn::write_safetensors(
      nn::torch_sources(*s.network, s.state, s.run.progress.batch, model, s.run.options.models), sink);
}

// All that is not the model's.
void write_optimizer(const Snapshot& s, const Sink& sink) {
  std::map<std::string, Tensor> rest = s.state;
  for (const auto& [path, parameter] : s.network->named_parameters()) rest.erase(path);
  nn::write_safetensors(rest, sink);
}

// What must be the same even where the weights alone are used.
constexpr std::array kNetwork{"arch", "dtype", "models"};
// How it is computed: this changes sums' order, or the batches in flight.
constexpr std::array kArithmetic{"threads",      "parallel", "ranks", "stages",
                                 "microbatches", "schedule", "plan"};
// What changes no loss. All other arguments say what is learnt.
const std::set<std::string> kIndifferent{
    "command_line",  "data",       "bad_samples", "workers", "epochs",   "steps",    "lockstep",
    "memory_budget", "transport",  "link",        "profile", "trace",    "simulate", "checkpoint_every",
    "keep",          "keep_every", "keep_best",   "resume",  "evaluate", "patience", "tensorboard",
    "max_rollbacks"};

// Where training drains then matters as well.
bool lagged(const TrainOptions& o) {
  return o.parallel == "pipeline" && (o.schedule == "pipedream" || o.schedule == "dualpipe");
}

class Comparison {
 public:
  Comparison(const json& saved, const json& now) : saved_(saved), now_(now) {}
  void add(const std::string& key) {
    // What an older version did not know it did as is now the default.
    const json &a = saved_.contains(key) ? saved_[key] : defaults_.at(key), &b = now_.at(key);
    if (a != b) differences_.push_back(fmt::format("{} {}, was {}", key, b.dump(), a.dump()));
  }
  void add(const std::string& what, bool differs) {
    if (differs) differences_.push_back(what);
  }
  std::vector<std::string> take() { return std::exchange(differences_, {}); }

 private:
  const json &saved_, &now_;
  const json defaults_ = json::parse(to_json(TrainOptions{}));
  std::vector<std::string> differences_;
};

}  // namespace

std::vector<CheckpointFile> checkpoint_files(std::map<std::string, Tensor> state, RunState run, int classes) {
  const int models = run.options.models;
  std::shared_ptr<nn::Module> network = network_of(run.options, classes);
  const auto snapshot =
      std::make_shared<const Snapshot>(Snapshot{std::move(state), std::move(network), std::move(run)});
  std::vector<CheckpointFile> files;
  for (int m = 0; m < models; ++m)
    files.push_back(
        {model_file(m, models), [snapshot, m](const Sink& sink) { write_model(*snapshot, m, sink); }});
  files.push_back({kOptimizer, [snapshot](const Sink& sink) { write_optimizer(*snapshot, sink); }});
  files.push_back({kRun, [snapshot](const Sink& sink) {
                     const std::string text = to_json(snapshot->run);
                     sink(std::as_bytes(std::span(text)));
                   }});
  return files;
}

RunState read_run_state(const Checkpoint& checkpoint) {
  const std::string file = checkpoint.file(kRun);
  try {
    const std::string text = read_text("checkpoint file", file);
    const JsonInput j = JsonInput::parse("run state", text), losses = j["losses"].required();
    RunState run;
    TrainProgress& p = run.progress;
    p.batch = j["batch"].required().integer<std::int64_t>(0, 0);
    run.epoch = j["epoch"].required().integer<std::int64_t>(0, 0);
    for (const auto& [key, values] : {std::pair("batches", &p.losses.batches), {"sum", &p.losses.sum}})
      for (const JsonInput& value : losses[key].required().items())
        values->push_back(value.number(0, -kAnyLoss, kAnyLoss));
    p.losses.not_finite = losses["not_finite"].required().integer<std::int64_t>(0, 0);
    p.best_accuracy = j["best_accuracy"].number(p.best_accuracy, -1, 1);
    p.epochs_since_best = j["epochs_since_best"].integer<std::int64_t>(0, 0);
    p.rollbacks = j["rollbacks"].integer<std::int64_t>(0, 0);
    run.train_data = j["train_data"].required().text();
    run.test_data = j["test_data"].required().text();
    const auto models = j["arguments"].required()["models"].required().integer<std::int64_t>(1, 1);
    run.arguments = json::parse(text).at("arguments").dump();
    if (std::ssize(p.losses.sum) != models || std::ssize(p.losses.batches) != models)
      throw Error("there are losses of other models than its arguments say");
    if (p.batch != checkpoint.step)
      throw Error(fmt::format("it is of batch {}, the checkpoint of {}", p.batch, checkpoint.step));
    return run;
  } catch (const std::exception& e) {
    throw Error(fmt::format("'{}' is not what train_cifar writes: {}", file, e.what()));
  }
}

std::map<std::string, Tensor> read_state(const Checkpoint& checkpoint, const TrainOptions& options,
                                         int classes, bool models_only) {
  std::vector<std::map<std::string, Tensor>> models;
  for (int m = 0; m < options.models; ++m) {
    const auto network = network_of(options, classes);
    nn::load_weights(*network, checkpoint.file(model_file(m, options.models)));
    models.push_back(network->state());
  }
  std::map<std::string, Tensor> state = stack_states(models);
  if (!models_only) state.merge(nn::SafetensorsFile(checkpoint.file(kOptimizer)).read_all());
  return state;
}

std::string compare(const RunState& saved, const RunState& now) {
  const json was = json::parse(saved.arguments), is = json::parse(now.arguments);
  Comparison differing(was, is);
  for (const char* key : kNetwork) differing.add(key);
  const bool evaluates = now.options.evaluate;
  if (!evaluates) {
    for (const auto& [key, value] : is.items())
      if (!kIndifferent.contains(key) && std::ranges::find(kArithmetic, key) == kArithmetic.end() &&
          std::ranges::find(kNetwork, key) == kNetwork.end())
        differing.add(key);
    if (now.options.sched == "cosine" || now.options.sched == "linear")  // which end with the run
      for (const char* key : {"epochs", "steps"}) differing.add(key);
    differing.add("other training images", saved.train_data != now.train_data);
    differing.add("other test images", saved.test_data != now.test_data);
  }
  if (const auto refused = differing.take(); !refused.empty())
    throw Error(fmt::format(
        "--resume: this would not be the run that was saved: {}. Give the same arguments and data, "
        "or begin a new run from the weights alone: --resume …/model.safetensors",
        fmt::join(refused, "; ")));
  if (evaluates) return "";
  for (const char* key : kArithmetic) differing.add(key);
  if (lagged(now.options)) differing.add("checkpoint_every");
  const auto noted = differing.take();
  return noted.empty() ? ""
                       : fmt::format("losses will not be those of the run that was saved to the bit: {}",
                                     fmt::join(noted, "; "));
}

}  // namespace tandem::apps
