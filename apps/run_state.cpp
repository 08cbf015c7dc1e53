#include "run_state.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <tandem/core/base/contains.h>
#include <tandem/core/base/json_input.h>

#include "flags.h"
#include "pipeline_options.h"
#include "typed_schedule.h"

namespace tandem::apps {
using namespace engine;
namespace {

using nlohmann::json;

using Texts = std::vector<std::string>;

// Adds the flags that change `what` and whose values differ from the saved run's. If the saved run was of an
// older version without a flag, the flag counts as today's default.
void add_differences(Texts& differences, Change what, const json& saved, const TrainOptions& now,
                     const Texts& except = {}) {
  for (const Flag& flag : flags()) {
    if (change_by(flag, now) != what || contains(except, flag.name)) continue;
    const std::string& key = flag.key;
    const json was = saved.contains(key) ? saved[key] : value_of(flag, TrainOptions{}),
               is = value_of(flag, now);
    if (is != was) differences.push_back(fmt::format("{} {}, was {}", key, is.dump(), was.dump()));
  }
}

// Throws Error if a flag has a value of another type than its own.
void require_types(const json& arguments) {
  for (const Flag& flag : flags())
    if (const std::string expected = value_of(flag, TrainOptions{}).type_name(),
        found = arguments.contains(flag.key) ? arguments.at(flag.key).type_name() : expected;
        found != expected)
      throw Error(fmt::format("arguments: \"{}\" is a {}, not a {}", flag.key, found, expected));
}

// A schedule's file counts by what it contains, wherever it lies.
bool compares_contents(const std::string& saved_digest, const json& saved, const TrainOptions& now) {
  return !saved_digest.empty() && (is_schedule_file(now.schedule) ||
                                   is_schedule_file(saved.value("schedule", TrainOptions{}.schedule)));
}

// If batches overlap, the cuts decide which weights a gradient is computed with; and the norm of all
// gradients adds up the stages' parts. With other numbers of stages, --stages differs.
bool cuts_count(const TrainOptions& o) { return o.clip_norm > 0 || schedule_of(o).overlaps_batches(); }

// A saved schedule's file may be gone, so such a run counts as one whose batches overlap.
bool overlapped_batches(const json& saved) {
  if (saved.value("parallel", TrainOptions{}.parallel) != "pipeline") return false;
  const std::string name = saved.value("schedule", TrainOptions{}.schedule);
  return is_schedule_file(name) || typed_schedule(name).function->overlaps_batches;
}

// Stages compute the same bits as one device if no batches overlap, and nothing adds up parts of stages.
bool stages_count(const json& saved, const TrainOptions& now) {
  return cuts_count(now) || overlapped_batches(saved);
}

}  // namespace

RunNotes notes_of(const RunState& run) {
  const auto quoted = [](const std::string& digest) { return fmt::format("\"{}\"", digest); };
  return {{"epoch", fmt::format("{}", run.epoch)}, {"train_data", quoted(run.train_data)},
          {"test_data", quoted(run.test_data)},    {"schedule", quoted(run.schedule)},
          {"cuts", json(run.cuts).dump()},         {"arguments", run.arguments}};
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
    if (j["schedule"].present()) run.schedule = j["schedule"].text();  // older versions wrote neither
    if (j["cuts"].present()) run.cuts = j["cuts"].texts();
    models = j["arguments"].required()["models"].required().integer(1, 1);
    const json arguments = json::parse(text).at("arguments");
    require_types(arguments);
    run.arguments = arguments.dump();
  } catch (const std::exception& e) {
    throw Error(fmt::format("'{}' is not what train_cifar writes: {}", file, e.what()));
  }
  run.progress = read_progress(checkpoint, models);
  if (run.epoch > run.progress.batch)
    throw Error(fmt::format("'{}' is not what train_cifar writes: epoch {} after {}", file, run.epoch,
                            counted(run.progress.batch, "batch")));
  return run;
}

void require_same_arguments(const std::string& directory, const std::string& saved, const TrainOptions& now) {
  const json was = json::parse(saved);
  require_types(was);
  Texts different;
  for (const Change change : {Change::network, Change::learning})
    add_differences(different, change, was, now);
  if (!different.empty())
    throw Error(fmt::format(
        "--resume auto: '{}' holds a run without a checkpoint, and this run would differ from it: {}. Give the "
        "same arguments, or choose another directory",
        directory, fmt::join(different, "; ")));
}

std::string compare(const RunState& saved, const RunState& now) {
  const json was = json::parse(saved.arguments);
  const bool evaluates = now.options.evaluate;
  Texts refused, noted;
  add_differences(refused, Change::network, was, now.options);
  if (!evaluates) {
    add_differences(refused, Change::learning, was, now.options);
    if (saved.train_data != now.train_data) refused.emplace_back("the training images are different");
    if (saved.test_data != now.test_data) refused.emplace_back("the test images are different");
    const bool by_contents = compares_contents(saved.schedule, was, now.options);
    if (by_contents && saved.schedule != now.schedule)
      noted.push_back(fmt::format("the schedule '{}' is different", now.options.schedule));
    Texts bits_stay;
    if (by_contents) bits_stay = {"schedule"};
    if (!stages_count(was, now.options)) bits_stay = {"parallel", "stages", "schedule", "chunks"};
    add_differences(noted, Change::arithmetic, was, now.options, bits_stay);
    if (cuts_count(now.options) && saved.cuts.size() == now.cuts.size() && saved.cuts != now.cuts)
      noted.push_back(fmt::format("cuts {}, was {}", fmt::join(now.cuts, ", "), fmt::join(saved.cuts, ", ")));
  }
  if (!refused.empty())
    throw Error(fmt::format(
        "--resume: this run would differ from the saved one: {}. Give the same arguments and data, "
        "or begin a new run from only the weights: --resume …/model.safetensors",
        fmt::join(refused, "; ")));
  return noted.empty() ? ""
                       : fmt::format("losses can differ from those of an uninterrupted run: {}",
                                     fmt::join(noted, "; "));
}

}  // namespace tandem::apps
