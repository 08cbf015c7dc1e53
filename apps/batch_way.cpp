#include "batch_way.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

namespace tandem::apps {
using namespace engine;
namespace {

int lag_of(const PipelineSchedule& schedule, Phase phase, int stage) {
  const auto task = std::ranges::find_if(schedule.tasks, [&](const Task& t) {
    return t.phase == phase && t.stage == stage && t.microbatch == 0;
  });
  return task->lag;
}

// The version that F or B reads.
std::int64_t version_read(const SimulatedOp& op, const WeightRule& rule) {
  const bool forward = op.kind == SimulatedOp::Kind::forward || !rule.backward_age;
  return std::max<std::int64_t>(0, op.batch + 1 - (forward ? rule.forward_age : *rule.backward_age));
}

// "5", or if that is moved to another by a prediction, "5→9".
std::string moved(std::int64_t from, std::int64_t to) {
  return from == to ? fmt::format("{}", from) : fmt::format("{}→{}", from, to);
}

// "W5→9": reads the weights of the start of unit 5, and predicts those of unit 9.
std::string weights_of(const SimulatedOp& op, std::int64_t read, int update_lag) {
  const auto unit = [&](std::int64_t version) { return version == 0 ? 0 : version + update_lag; };
  return "W" + moved(unit(read), unit(op.predicts));
}

// Of an arrow: one column, three bytes.
std::int64_t width_of(const std::string& text) {
  return static_cast<std::int64_t>(text.size()) - (std::ranges::count(text, '\xe2') * 2);
}

}  // namespace

std::vector<WayStep> way_of_batch(const PipelineSchedule& schedule, const PipelineSimulation& simulated,
                                  std::int64_t batch) {
  std::vector<WayStep> way;
  for (const SimulatedOp& op : simulated.ops) {
    const bool forward = op.kind == SimulatedOp::Kind::forward;
    if (op.batch != batch || op.microbatch != 0 || (!forward && op.kind != SimulatedOp::Kind::backward))
      continue;
    const WeightRule& rule = schedule.stages[static_cast<std::size_t>(op.stage)].weights;
    const std::int64_t read = version_read(op, rule);
    way.push_back({batch + lag_of(schedule, forward ? Phase::forward : Phase::backward, op.stage), op.stage,
                   forward, weights_of(op, read, lag_of(schedule, Phase::update, op.stage)),
                   moved(batch - read, batch - op.predicts)});
  }
  return way;
}

std::string drawing_of(const std::vector<WayStep>& way, const std::string& what,
                       const std::string& schedule) {
  std::map<std::int64_t, std::map<int, std::string>> cells;  // by unit and stage
  std::map<int, std::string> ages;                           // by stage
  int stages = 0;
  for (const WayStep& step : way) {
    std::string& cell = cells[step.unit][step.stage];
    cell += fmt::format("{}{} {}", cell.empty() ? "" : "  ", step.forward ? "F" : "B", step.weights);
    ages[step.stage] +=
        fmt::format("{}{} {}", ages[step.stage].empty() ? "" : "  ", step.forward ? "F" : "B", step.age);
    stages = std::max(stages, step.stage + 1);
  }
  std::string drawing = fmt::format("\n{} under {}: Wt is what a stage has at the start of unit t\n{:<10}",
                                    what, schedule, "unit");
  std::map<std::int64_t, std::int64_t> widths;
  for (const auto& [unit, of_stages] : cells) {
    for (const auto& [stage, text] : of_stages) widths[unit] = std::max(widths[unit], width_of(text));
    widths[unit] = std::max<std::int64_t>(widths[unit], 4);
    drawing += fmt::format("{:<{}}", unit, widths[unit] + 2);
  }
  drawing += "updates old";
  for (int k = 0; k < stages; ++k) {
    drawing += fmt::format("\n{:<10}", fmt::format("stage {}", k));
    for (auto& [unit, of_stages] : cells)
      drawing += of_stages[k] +
                 std::string(static_cast<std::size_t>(widths[unit] + 2 - width_of(of_stages[k])), ' ');
    drawing += ages[k];
  }
  return drawing + "\n";
}

}  // namespace tandem::apps
