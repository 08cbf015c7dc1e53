#include <tandem/pipeline/schedule_costs.h>

#include <algorithm>
#include <array>
#include <utility>

#include <tandem/core/base/contains.h>

namespace tandem::engine {
namespace {

std::vector<Task> tasks_of(const PipelineSchedule& schedule, int stage, Phase phase) {
  std::vector<Task> tasks;
  for (const Task& t : schedule.tasks)
    if (t.stage == stage && t.phase == phase) tasks.push_back(t);
  return tasks;
}

// Units from the forward of each micro-batch to its backward, in all.
int units_between(const PipelineSchedule& schedule, int stage) {
  int units = 0;
  for (const Task& t : tasks_of(schedule, stage, Phase::backward)) units += t.lag;
  for (const Task& t : tasks_of(schedule, stage, Phase::forward)) units -= t.lag;
  return units;
}

// The tasks of a stage that read its weights, with the ages of what they read. A prediction reads them before
// its first use, for all uses; F and B share one if they predict the same.
std::vector<std::pair<Task, int>> weight_readers(const PipelineSchedule& schedule, int stage) {
  const WeightRule& weights = schedule.stages[static_cast<std::size_t>(stage)].weights;
  std::vector<std::pair<Task, int>> readers;
  const auto add = [&](Phase phase, int age, int predicts) {
    const std::vector<Task> tasks = tasks_of(schedule, stage, phase);
    if (predicts == 0)
      for (const Task& t : tasks) readers.emplace_back(t, age);
    else
      readers.emplace_back(*std::ranges::min_element(tasks, {}, &Task::lag), age);
  };
  add(Phase::forward, weights.forward_age, weights.forward_predicts);
  if (weights.backward_age)
    add(Phase::backward, *weights.backward_age, weights.backward_predicts);
  else if (weights.forward_predicts == 0)
    add(Phase::backward, weights.forward_age, 0);
  const bool predicts_the_same = weights.forward_predicts > 0 &&
                                 weights.backward_age == weights.forward_age &&
                                 weights.backward_predicts == weights.forward_predicts;
  if (predicts_the_same && readers[0].first.lag == readers[1].first.lag) readers.pop_back();
  return readers;
}

bool any(const std::vector<Task>& forwards, const std::vector<Task>& backwards, int Task::*same) {
  return std::ranges::any_of(forwards, [&](const Task& f) {
    return std::ranges::any_of(backwards, [&](const Task& b) { return f.*same == b.*same; });
  });
}

}  // namespace

int held_activations(const PipelineSchedule& schedule, int stage) {
  int held = units_between(schedule, stage), most = held;  // at the begin of a unit
  for (const Task& t : schedule.tasks) {
    if (t.stage != stage) continue;
    if (t.phase == Phase::forward) most = std::max(most, ++held);
    if (t.phase == Phase::backward) --held;
  }
  return most;
}

double held_batches(int held, int microbatches, int replicas, bool in_turn) {
  const double m = microbatches;
  if (!in_turn) return held / m / replicas;
  const int round = microbatches * replicas;
  return held / round + std::min(held % round, microbatches) / m;
}

int weight_versions(const PipelineSchedule& schedule, int stage) {
  const Task update = tasks_of(schedule, stage, Phase::update).at(0);
  int versions = 1;
  for (const auto& [reader, age] : weight_readers(schedule, stage)) {
    const bool follows_update =  // then it needs one slot more
        *std::ranges::find_first_of(schedule.tasks, std::array{reader, update}) == update;
    versions = std::max(versions, reader.lag + age - update.lag + (follows_update ? 1 : 0));
  }
  return versions;
}

CrossingSlots crossing_slots(const PipelineSchedule& schedule, int stage) {
  const auto device = [&](int s) { return schedule.stages[static_cast<std::size_t>(s)].device; };
  const double microbatches = schedule.microbatches();
  // What crosses once in a unit has a slot more at each end (core/schedule/waits.cpp).
  const int more = schedule.overlaps_batches() && microbatches == 1 ? 1 : 0;
  const auto place = [&](Phase phase, int s, int microbatch) {
    return std::ranges::find_if(schedule.tasks, [&](const Task& t) {
      return t.phase == phase && t.stage == s && t.microbatch == microbatch && t.array == 0;
    });
  };
  // From the task of another stage that makes a value to the task of this one that uses it.
  const auto received = [&](Phase phase, int from) {
    if (from < 0 || from == std::ssize(schedule.stages)) return 0.0;
    double slots = 0;
    for (int i = 0; i < schedule.microbatches(); ++i) {
      const auto made = place(phase, from, i), used = place(phase, stage, i);
      slots += used->lag - made->lag + (used > made ? 1 : 0) + (device(from) != device(stage) ? more : 0);
    }
    return slots / microbatches;
  };
  const auto sent = [&](int to) {
    const bool is_sent = to >= 0 && to < std::ssize(schedule.stages) && device(to) != device(stage);
    return is_sent ? 1.0 + more : 0.0;
  };
  return {.received_values = received(Phase::forward, stage - 1),
          .sent_values = sent(stage + 1),
          .received_gradients = received(Phase::backward, stage + 1),
          .sent_gradients = sent(stage - 1)};
}

int predicted_weights(const PipelineSchedule& schedule, int stage) {
  const WeightRule& weights = schedule.stages[static_cast<std::size_t>(stage)].weights;
  if (weights.forward_predicts > 0 && !weights.backward_age) {
    const int microbatches = schedule.microbatches();
    return (held_activations(schedule, stage) + microbatches - 1) / microbatches;
  }
  const bool both_the_same =
      weights.forward_predicts == weights.backward_predicts && units_between(schedule, stage) == 0;
  return (weights.forward_predicts > 0 ? 1 : 0) + (weights.backward_predicts > 0 && !both_the_same ? 1 : 0);
}

double StageTiming::unit_seconds(double forward, double backward, double corun) const {
  double longest = 0;
  for (const Tick& tick : ticks) {
    const double f = tick.forward * forward, b = tick.backward * backward;
    const double beside = std::max({f, b, corun * (f + b)});
    longest = std::max(longest, tick.beside * beside + (1 - tick.beside) * (f + b));
  }
  return stages_of_device * (ticks_of_unit * longest);
}

StageTiming stage_timing(const PipelineSchedule& schedule, int stage) {
  const auto device = [&](int s) { return schedule.stages[static_cast<std::size_t>(s)].device; };
  std::vector<std::vector<Task>> forwards(1), backwards(1);  // by tick
  for (const Task& t : schedule.tasks) {
    if (t.phase == Phase::barrier && device(t.stage) == device(stage) && schedule.devices() > 1) {
      forwards.emplace_back();
      backwards.emplace_back();
    }
    if (t.stage != stage) continue;
    if (t.phase == Phase::forward) forwards.back().push_back(t);
    if (t.phase == Phase::backward) backwards.back().push_back(t);
  }
  const bool has_barriers = forwards.size() > 1;
  if (has_barriers) {  // what follows the last barrier precedes the first of the next unit
    std::ranges::copy(forwards.back(), std::back_inserter(forwards.front()));
    std::ranges::copy(backwards.back(), std::back_inserter(backwards.front()));
    forwards.pop_back();
    backwards.pop_back();
  }
  StageTiming timing;
  timing.ticks_of_unit = static_cast<int>(forwards.size());
  timing.stages_of_device = 0;
  for (int s = 0; s < static_cast<int>(schedule.stages.size()); ++s)
    if (device(s) == device(stage)) ++timing.stages_of_device;
  const double microbatches = schedule.microbatches();
  for (std::size_t i = 0; i < forwards.size(); ++i) {
    const auto &f = forwards[i], &b = backwards[i];
    const bool two_lanes = !f.empty() && !b.empty() && !any(f, b, &Task::lane);
    const bool of_one_batch = any(f, b, &Task::lag);  // then only a forward and an earlier backward overlap
    timing.overlaps = timing.overlaps || (two_lanes && !of_one_batch);
    if (has_barriers && schedule.overlaps_batches())
      timing.microbatches_of_tick = std::max(timing.microbatches_of_tick, static_cast<int>(f.size()));
    const StageTiming::Tick tick{static_cast<double>(f.size()) / microbatches,
                                 static_cast<double>(b.size()) / microbatches,
                                 !two_lanes     ? 0
                                 : of_one_batch ? 1 - 1 / microbatches
                                                : 1};
    if (!contains(timing.ticks, tick)) timing.ticks.push_back(tick);
  }
  return timing;
}

}  // namespace tandem::engine
