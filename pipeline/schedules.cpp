#include <tandem/pipeline/schedules.h>

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tandem/core/base/error.h>
#include <tandem/core/base/named.h>

namespace tandem {
using namespace engine;
namespace {

// The stages of a shape, with plain weights, and no task.
PipelineSchedule stages_of(const PipelineShape& shape) {
  PipelineSchedule s;
  for (int k = 0; k < shape.stages; ++k) s.stages.push_back({k % shape.devices()});
  return s;
}

// Ends a tick: all devices meet. Device d is that of stage d.
void end_tick(PipelineSchedule& s, const PipelineShape& shape, int tick) {
  if (!shape.lockstep) return;
  for (int d = 0; d < shape.devices(); ++d) s.tasks.push_back({Phase::barrier, d, tick});
}

// Returns the tasks of one device under a flush: `ahead` forwards, then a backward and a forward in turn. The
// i-th forward and backward of the device are `forward(i)` and `backward(i)` of `count`.
template <class Forward, class Backward>
std::vector<Task> one_forward_one_backward(int count, int ahead, Forward forward, Backward backward) {
  std::vector<Task> tasks;
  const int warm_up = std::min(count, ahead);
  for (int i = 0; i < warm_up; ++i) tasks.push_back(forward(i));
  for (int i = 0; i < count; ++i) {
    tasks.push_back(backward(i));
    if (warm_up + i < count) tasks.push_back(forward(warm_up + i));
  }
  return tasks;
}

// Merges the devices' lists into one, in which a task comes after the tasks that make its inputs.
std::vector<Task> merged(const std::vector<std::vector<Task>>& devices, int stages) {
  std::vector<Task> all;
  std::set<std::tuple<Phase, int, int>> listed;
  const auto is_ready = [&](const Task& t) {
    if (t.phase == Phase::forward)
      return t.stage == 0 || listed.contains({Phase::forward, t.stage - 1, t.microbatch});
    return listed.contains({Phase::forward, t.stage, t.microbatch}) &&
           (t.stage == stages - 1 || listed.contains({Phase::backward, t.stage + 1, t.microbatch}));
  };
  std::vector<std::size_t> next(devices.size(), 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t d = 0; d < devices.size(); ++d) {
      if (next[d] == devices[d].size() || !is_ready(devices[d][next[d]])) continue;
      const Task& task = devices[d][next[d]++];
      all.push_back(task);
      listed.emplace(task.phase, task.stage, task.microbatch);
      moved = true;
    }
  }
  return all;
}

// All micro-batches go through, then every stage updates.
PipelineSchedule flushed(const PipelineShape& shape, const std::vector<std::vector<Task>>& devices) {
  PipelineSchedule s = stages_of(shape);
  s.tasks = merged(devices, shape.stages);
  for (int k = 0; k < shape.stages; ++k) s.tasks.push_back({Phase::update, k});
  end_tick(s, shape, 1);
  return s;
}

// Each device has one stage, which lets `ahead(stage)` forwards run before the first backward.
template <class Ahead> PipelineSchedule flushed(const PipelineShape& shape, Ahead ahead) {
  std::vector<std::vector<Task>> devices;
  for (int k = 0; k < shape.stages; ++k)
    devices.push_back(one_forward_one_backward(
        shape.microbatches, ahead(k),
        [&](int i) {
          return Task{Phase::forward, k, i};
        },
        [&](int i) {
          return Task{Phase::backward, k, i};
        }));
  return flushed(shape, devices);
}

PipelineSchedule plain(const PipelineShape& shape) {
  return flushed(shape, [](int) { return 1; });
}

PipelineSchedule gpipe(const PipelineShape& shape) {
  return flushed(shape, [&](int) { return shape.microbatches; });
}

PipelineSchedule one_f_one_b(const PipelineShape& shape) {
  return flushed(shape, [&](int k) { return shape.stages - k; });
}

// A device takes its chunks in turn, each for N micro-batches (Narayanan et al., 2021, Fig. 4).
PipelineSchedule interleaved(const PipelineShape& shape) {
  const int n = shape.devices(), m = shape.microbatches, v = shape.chunks;
  if (m % n != 0)
    throw Error(fmt::format(
        "the schedule 'interleaved' takes micro-batches in groups of one per device: give a multiple of {}, "
        "not {}",
        n, m));
  const auto task = [&](Phase phase, int device, int i) {
    const int turn = i / n % v, chunk = phase == Phase::forward ? turn : v - 1 - turn;
    return Task{phase, chunk * n + device, i / (n * v) * n + i % n};
  };
  std::vector<std::vector<Task>> devices;
  for (int d = 0; d < n; ++d)
    devices.push_back(one_forward_one_backward(
        m * v, 2 * (n - 1 - d) + (v - 1) * n + 1, [&](int i) { return task(Phase::forward, d, i); },
        [&](int i) { return task(Phase::backward, d, i); }));
  return flushed(shape, devices);
}

// PipeDream's timing: each tick is a forward or a backward, alternating, and an item enters every other tick
// (DualPipe paper, Fig. 6a). A unit is `items` items of `parts` micro-batches each.
PipelineSchedule single_issue(const PipelineShape& shape, int items, int parts) {
  const int n = shape.stages, ticks = 2 * items;
  PipelineSchedule s = stages_of(shape);
  for (int tick = 0; tick < ticks; ++tick) {
    for (int k = 0; k < n; ++k)
      for (int item = 0; item < items; ++item) {
        const int forward = 2 * item + k, backward = 2 * item + 2 * n - 1 - k;
        for (int i = item * parts; i < (item + 1) * parts; ++i) {
          if (forward % ticks == tick) s.tasks.push_back({Phase::forward, k, i, forward / ticks});
          if (backward % ticks == tick) s.tasks.push_back({Phase::backward, k, i, backward / ticks});
        }
        if (backward % ticks == tick && item == items - 1)
          s.tasks.push_back({Phase::update, k, 0, backward / ticks});
      }
    end_tick(s, shape, tick);
  }
  return s;
}

PipelineSchedule pipedream(const PipelineShape& shape) {
  PipelineSchedule s = single_issue(shape, 1, shape.microbatches);
  for (int k = 0; k < shape.stages; ++k) s.stages[k].weights = {.forward_age = shape.stages - k};
  return s;
}

PipelineSchedule pipedream_vs(const PipelineShape& shape) {
  PipelineSchedule s = single_issue(shape, 1, shape.microbatches);
  for (PipelineStage& stage : s.stages) stage.weights = {.forward_age = shape.stages};
  return s;
}

PipelineSchedule pipedream_2bw(const PipelineShape& shape) {
  if (shape.microbatches < shape.stages)
    throw Error(
        fmt::format("the schedule 'pipedream-2bw' keeps two versions of the weights, which takes {} or more "
                    "micro-batches on {}: there are {}",
                    shape.stages, counted(shape.stages, "stage"), shape.microbatches));
  PipelineSchedule s = single_issue(shape, shape.microbatches, 1);
  for (PipelineStage& stage : s.stages) stage.weights = {.forward_age = 2};
  return s;
}

// DualPipe's timing: each tick is a forward and a backward, on two compute lanes, and a batch enters every
// tick (DualPipe paper, Fig. 6b).
PipelineSchedule dual_issue(const PipelineShape& shape) {
  const int n = shape.stages;
  PipelineSchedule s = stages_of(shape);
  for (int k = 0; k < n; ++k)
    for (int i = 0; i < shape.microbatches; ++i) s.tasks.push_back({Phase::forward, k, i, k, 0});
  // A stage makes a gradient before the stage that uses it is done with the one before. So there is room for
  // both, and the transfer runs beside that stage's computation.
  for (int k = n; k-- > 0;)
    for (int i = 0; i < shape.microbatches; ++i) s.tasks.push_back({Phase::backward, k, i, 2 * n - 2 - k, 1});
  for (int k = 0; k < n; ++k) s.tasks.push_back({Phase::update, k, 0, 2 * n - 2 - k, 1});
  end_tick(s, shape, 0);
  return s;
}

PipelineSchedule dualpipe(const PipelineShape& shape) {
  PipelineSchedule s = dual_issue(shape);
  for (int k = 0; k < shape.stages; ++k) s.stages[k].weights = {2 * shape.stages - 1 - 2 * k, 1};
  return s;
}

PipelineSchedule spectrain(const PipelineShape& shape) {
  PipelineSchedule s = dualpipe(shape);
  const bool serial = shape.target == SpecTrainTarget::serial;
  for (int k = 0; k < shape.stages; ++k) {
    WeightRule& weights = s.stages[k].weights;
    weights.forward_predicts = serial ? 2 * (shape.stages - 1 - k) : 2 * shape.stages - 2 - k;
    weights.backward_predicts = serial ? 0 : k;
    weights.only_real_updates = shape.target == SpecTrainTarget::effective;
  }
  return s;
}

PipelineSchedule dualpipe_vs(const PipelineShape& shape) {
  PipelineSchedule s = dual_issue(shape);
  for (int k = 0; k < shape.stages; ++k) s.stages[k].weights = {2 * shape.stages - 1 - k};
  return s;
}

constexpr std::array kSchedules{
    ScheduleFunction{
        .name = "plain", .help = "one micro-batch at a time goes forward and back", .make = plain},
    ScheduleFunction{.name = "gpipe",
                     .help = "all micro-batches go forward, then all go back; then all stages update",
                     .make = gpipe},
    ScheduleFunction{.name = "1f1b",
                     .help = "as gpipe, but a backward follows a forward as soon as it can: less memory",
                     .make = one_f_one_b},
    ScheduleFunction{.name = "interleaved",
                     .help = "as 1f1b, with several stages on each device (--chunks): less idle time",
                     .make = interleaved,
                     .takes_chunks = true},
    ScheduleFunction{
        .name = "pipedream",
        .help = "a forward and a backward of another batch in turn; backward uses its forward's weights",
        .make = pipedream,
        .overlaps_batches = true},
    ScheduleFunction{.name = "pipedream-vs",
                     .help = "as pipedream, and all stages use weights of one version",
                     .make = pipedream_vs,
                     .overlaps_batches = true},
    ScheduleFunction{.name = "pipedream-2bw",
                     .help = "as 1f1b without a flush; weights are one update old, two versions are kept",
                     .make = pipedream_2bw,
                     .overlaps_batches = true},
    ScheduleFunction{.name = "dualpipe",
                     .help = "a forward beside a backward of another batch, both with the latest weights",
                     .make = dualpipe,
                     .overlaps_batches = true},
    ScheduleFunction{.name = "dualpipe-vs",
                     .help = "as dualpipe, and all stages use weights of one version",
                     .make = dualpipe_vs,
                     .overlaps_batches = true},
    ScheduleFunction{.name = "spectrain",
                     .help = "as dualpipe, with the weights that it predicts for the batch's end",
                     .make = spectrain,
                     .overlaps_batches = true,
                     .takes_target = true}};

// Returns the function with this name. Throws Error if it cannot take the stages.
const ScheduleFunction& function_for(std::string_view name, const PipelineShape& shape) {
  const ScheduleFunction& schedule = schedule_named(name);
  if (shape.stages < 1 || shape.microbatches < 1 || shape.chunks < 1)
    throw Error(
        fmt::format("a schedule of {} stages, {} micro-batches and {} chunks: there must be 1 or more",
                    shape.stages, shape.microbatches, shape.chunks));
  if (shape.stages % shape.chunks != 0)
    throw Error(fmt::format("{} cannot be {} on each device: give a multiple of {}",
                            counted(shape.stages, "stage"), shape.chunks, shape.chunks));
  if (shape.chunks > 1 && !schedule.takes_chunks)
    throw Error(fmt::format("the schedule '{}' has one stage on each device; those that take chunks: {}",
                            name, fmt::join(schedule_names(&ScheduleFunction::takes_chunks), ", ")));
  return schedule;
}

}  // namespace

SpecTrainTarget spectrain_target(std::string_view name) {
  using enum SpecTrainTarget;
  constexpr std::array<Named<SpecTrainTarget>, 3> targets{
      {{"paper", paper}, {"effective", effective}, {"serial", serial}}};
  return row_named(name, targets, "target of predictions").value;
}

std::span<const ScheduleFunction> pipeline_schedules() { return kSchedules; }

std::vector<std::string> schedule_names(bool ScheduleFunction::*column) {
  std::vector<std::string> names;
  for (const ScheduleFunction& s : kSchedules)
    if (!column || s.*column) names.emplace_back(s.name);
  return names;
}

const ScheduleFunction& schedule_named(std::string_view name) {
  if (name.ends_with(".json"))
    throw Error(
        fmt::format("'{}' is no name of a schedule: with_schedule(strategy, read_schedule(\"{}\")) takes it "
                    "from a file (pipeline/schedule_file.h)",
                    name, name));
  return row_named(name, kSchedules, "schedule");
}

PipelineSchedule make_schedule(std::string_view name, const PipelineShape& shape) {
  return function_for(name, shape).make(shape);
}

PipelineSchedule evaluation_schedule(std::string_view name, const PipelineShape& shape) {
  function_for(name, shape);
  return one_by_one(stages_of(shape));
}

}  // namespace tandem
