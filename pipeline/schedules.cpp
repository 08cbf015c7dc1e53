#include <tandem/pipeline/schedules.h>

#include <algorithm>
#include <array>
#include <string>

#include <fmt/format.h>

#include <tandem/core/base/contains.h>
#include <tandem/core/base/error.h>

namespace tandem {
using namespace engine;
namespace {

constexpr std::array<std::pair<ScheduleKind, std::string_view>, 5> kNames{
    {{ScheduleKind::plain, "plain"},
     {ScheduleKind::gpipe, "gpipe"},
     {ScheduleKind::one_f_one_b, "1f1b"},
     {ScheduleKind::pipedream, "pipedream"},
     {ScheduleKind::dualpipe, "dualpipe"}}};

// The tasks of each stage under a flush: `ahead(k)` forwards, then a backward and a forward in turn.
template <class Ahead> std::vector<std::vector<Task>> per_stage(int stages, int microbatches, Ahead ahead) {
  std::vector<std::vector<Task>> tasks(static_cast<std::size_t>(stages));
  for (int k = 0; k < stages; ++k) {
    auto& list = tasks[static_cast<std::size_t>(k)];
    const int warm_up = std::min(microbatches, ahead(k));
    for (int i = 0; i < warm_up; ++i) list.push_back({Phase::forward, k, i});
    for (int b = 0; b < microbatches; ++b) {
      list.push_back({Phase::backward, k, b});
      if (warm_up + b < microbatches) list.push_back({Phase::forward, k, warm_up + b});
    }
  }
  return tasks;
}

// Merges the stages' lists into one, in which a task comes after the task that makes its input.
std::vector<Task> merged(const std::vector<std::vector<Task>>& stages) {
  const int n = static_cast<int>(stages.size());
  std::vector<Task> order;
  std::vector<std::size_t> next(stages.size(), 0);
  const auto listed = [&](const Task& t) { return contains(order, t); };
  const auto ready = [&](const Task& t) {
    if (t.phase == Phase::forward) return t.stage == 0 || listed({Phase::forward, t.stage - 1, t.microbatch});
    return t.stage == n - 1 || listed({Phase::backward, t.stage + 1, t.microbatch});
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t k = 0; k < stages.size(); ++k)
      if (next[k] < stages[k].size() && ready(stages[k][next[k]])) {
        order.push_back(stages[k][next[k]++]);
        moved = true;
      }
  }
  return order;
}

void add_tasks(std::vector<Task>& order, Phase phase, int stage, int microbatches) {
  for (int i = 0; i < microbatches; ++i) order.push_back({phase, stage, i});
}

// A task of every stage.
void add_to_all(std::vector<Task>& order, Phase phase, int stages, int microbatch) {
  for (int k = 0; k < stages; ++k) order.push_back({phase, k, microbatch});
}

template <class Ahead> PipelineSchedule flushed(int stages, int microbatches, Ahead ahead) {
  std::vector<Task> order = merged(per_stage(stages, microbatches, ahead));
  add_to_all(order, Phase::update, stages, 0);
  return {std::vector<StageTiming>(static_cast<std::size_t>(stages)), std::move(order)};
}

PipelineSchedule dualpipe(int n, int microbatches) {
  PipelineSchedule s;
  for (int k = 0; k < n; ++k) s.stages.push_back({k, 2 * n - 2 - k, 1, 2 * n - 1 - 2 * k, false});
  for (Phase phase : {Phase::forward, Phase::backward})
    for (int k = 0; k < n; ++k) add_tasks(s.order, phase, k, microbatches);
  add_to_all(s.order, Phase::update, n, 0);
  return s;
}

PipelineSchedule pipedream(int n, int microbatches, bool lockstep) {
  PipelineSchedule s;
  for (int k = 0; k < n; ++k) s.stages.push_back({k / 2, (2 * n - 1 - k) / 2, 0, n - k, true});
  for (int tick = 0; tick < 2; ++tick) {  // even stages: F, then B and U; odd stages the other way round
    for (int k = 0; k < n; ++k) {
      if (k % 2 == tick) {
        add_tasks(s.order, Phase::forward, k, microbatches);
      } else {
        add_tasks(s.order, Phase::backward, k, microbatches);
        s.order.push_back({Phase::update, k, 0});
      }
    }
    if (lockstep && tick == 0) add_to_all(s.order, Phase::barrier, n, 0);
  }
  return s;
}

}  // namespace

std::string_view name_of(ScheduleKind kind) {
  return std::find_if(kNames.begin(), kNames.end(), [&](const auto& n) { return n.first == kind; })->second;
}

ScheduleKind schedule_from_name(std::string_view name) {
  std::string known;
  for (const auto& [kind, text] : kNames) {
    if (text == name) return kind;
    known += (known.empty() ? "" : ", ") + std::string(text);
  }
  throw Error(fmt::format("unknown schedule '{}'; there are: {}", name, known));
}

bool overlaps_batches(ScheduleKind kind) {
  const auto stages = engine::make_schedule(kind, 2, 1).stages;
  return std::ranges::any_of(stages, [](const StageTiming& t) { return t.backward_lag > 0; });
}

int compute_lanes(ScheduleKind kind) {
  const auto stages = engine::make_schedule(kind, 2, 1).stages;
  return 1 + std::ranges::max(stages, {}, &StageTiming::backward_lane).backward_lane;
}

PipelineSchedule engine::make_schedule(ScheduleKind kind, int stages, int microbatches, bool lockstep) {
  if (stages < 1 || microbatches < 1)
    throw Error(fmt::format("a schedule of {} stages and {} micro-batches: both must be 1 or more", stages,
                            microbatches));
  PipelineSchedule s;
  switch (kind) {
    case ScheduleKind::plain: s = flushed(stages, microbatches, [](int) { return 1; }); break;
    case ScheduleKind::gpipe: s = flushed(stages, microbatches, [&](int) { return microbatches; }); break;
    case ScheduleKind::one_f_one_b:
      s = flushed(stages, microbatches, [&](int k) { return stages - k; });
      break;
    case ScheduleKind::pipedream: s = pipedream(stages, microbatches, lockstep); break;
    case ScheduleKind::dualpipe: s = dualpipe(stages, microbatches); break;
  }
  if (lockstep) add_to_all(s.order, Phase::barrier, stages, 1);
  return s;
}

}  // namespace tandem
