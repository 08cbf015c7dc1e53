#include "run_state.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <tandem/core/base/error.h>
#include <tandem/core/base/json_input.h>

#include "run_directory.h"

namespace tandem::apps {
using namespace engine;
namespace {

using nlohmann::json;
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

RunNotes notes_of(const RunState& run) {
  const auto quoted = [](const std::string& digest) { return fmt::format("\"{}\"", digest); };
  return {{"epoch", fmt::format("{}", run.epoch)},
          {"train_data", quoted(run.train_data)},
          {"test_data", quoted(run.test_data)},
          {"arguments", run.arguments}};
}

RunState read_run_state(const Checkpoint& checkpoint) {
  const std::string file = checkpoint.file(kRunFile), text = read_text("checkpoint file", file);
  RunState run;
  int models = 0;
  try {
    const JsonInput j = JsonInput::parse("run state", text);
    run.epoch = j["epoch"].required().integer<std::int64_t>(0, 0);
    run.train_data = j["train_data"].required().text();
    run.test_data = j["test_data"].required().text();
    models = j["arguments"].required()["models"].required().integer(1, 1);
    run.arguments = json::parse(text).at("arguments").dump();
  } catch (const std::exception& e) {
    throw Error(fmt::format("'{}' is not what train_cifar writes: {}", file, e.what()));
  }
  run.progress = read_progress(checkpoint, models);
  return run;
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
