#include <tandem/pipeline/schedule_file.h>

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tandem/core/base/error.h>
#include <tandem/core/base/json_input.h>

namespace tandem::engine {
namespace {

constexpr int kMost = 10'000;

const std::vector<std::string> kKinds{"F", "B", "U", "barrier"};  // of kPhases
constexpr std::array kPhases{Phase::forward, Phase::backward, Phase::update, Phase::barrier};

const std::string& kind_of(Phase phase) {
  return kKinds[static_cast<std::size_t>(std::ranges::find(kPhases, phase) - kPhases.begin())];
}

PipelineStage stage_of(const JsonInput& stage) {
  stage.require_keys({"device", "forward_age", "backward_age", "forward_predicts", "backward_predicts",
                      "only_real_updates"});
  PipelineStage s{stage["device"].integer(0, 0, kMost), {stage["forward_age"].integer(1, 1, kMost)}};
  if (const JsonInput age = stage["backward_age"]; age.present())
    s.weights.backward_age = age.integer(1, 1, kMost);
  s.weights.forward_predicts = stage["forward_predicts"].integer(0, 0, kMost);
  s.weights.backward_predicts = stage["backward_predicts"].integer(0, 0, kMost);
  s.weights.only_real_updates = stage["only_real_updates"].flag(false);
  return s;
}

Task task_of(const JsonInput& task) {
  task.require_keys({"kind", "stage", "microbatch", "lag", "lane"});
  return {kPhases[task["kind"].one_of(kKinds)], task["stage"].required().integer(0, 0, kMost),
          task["microbatch"].integer(0, 0, kMost), task["lag"].integer(0, 0, kMost),
          task["lane"].integer(0, 0, kMost)};
}

std::string to_json(const PipelineStage& s) {
  const WeightRule& w = s.weights;
  std::string text = fmt::format(R"({{"device": {}, "forward_age": {})", s.device, w.forward_age);
  if (w.backward_age) text += fmt::format(R"(, "backward_age": {})", *w.backward_age);
  if (w.forward_predicts > 0) text += fmt::format(R"(, "forward_predicts": {})", w.forward_predicts);
  if (w.backward_predicts > 0) text += fmt::format(R"(, "backward_predicts": {})", w.backward_predicts);
  if (w.only_real_updates) text += R"(, "only_real_updates": true)";
  return text + "}";
}

std::string to_json(const Task& t) {
  return fmt::format(R"({{"kind": "{}", "stage": {}, "microbatch": {}, "lag": {}, "lane": {}}})",
                     kind_of(t.phase), t.stage, t.microbatch, t.lag, t.lane);
}

template <class T> std::string lines(const std::vector<T>& list) {
  std::vector<std::string> texts;
  for (const T& item : list) texts.push_back("  " + to_json(item));
  return fmt::format("[\n{}]", fmt::join(texts, ",\n"));
}

}  // namespace

PipelineSchedule read_schedule(const std::string& file) {
  const JsonInput json = JsonInput::parse(fmt::format("schedule '{}'", file), read_text("schedule", file));
  json.require_keys({"stages", "tasks"});
  PipelineSchedule schedule;
  for (const JsonInput& stage : json["stages"].required().items()) schedule.stages.push_back(stage_of(stage));
  for (const JsonInput& task : json["tasks"].required().items()) schedule.tasks.push_back(task_of(task));
  try {
    check(schedule);
  } catch (const Error& e) {
    throw Error(fmt::format("schedule '{}': {}", file, e.what()));
  }
  return schedule;
}

std::string to_json(const PipelineSchedule& schedule) {
  return fmt::format("{{\"stages\": {},\n\"tasks\": {}}}\n", lines(schedule.stages), lines(schedule.tasks));
}

}  // namespace tandem::engine
