#include <tandem/plan/pipeline_simulation.h>

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include <tandem/core/base/error.h>
#include <tandem/core/base/units.h>
#include <tandem/core/runtime/sim_backend.h>
#include <tandem/dist/link.h>
#include <tandem/ops/update.h>
#include <tandem/plan/stage_program.h>

namespace tandem::engine {
namespace {

std::optional<SimulatedOp::Kind> kind_of(const Instruction& s, const StageProfile& profile) {
  using enum SimulatedOp::Kind;
  if (const auto* op = as<StageOp>(s)) return op->kind == StageOp::Kind::forward ? forward : backward;
  if (as<SgdUpdateOp>(s)) return update;
  if (is_all_reduce_of_stage(s, profile)) return all_reduce;
  if (s.op->lane() == LaneKind::send) return send;
  if (s.op->lane() == LaneKind::receive) return receive;
  return std::nullopt;
}

// The version whose weights F or B of batch b computes with: of those that it reads, moved by its prediction.
std::int64_t version_used(const WeightRule& rule, Phase phase, std::int64_t batch) {
  const bool forward = phase == Phase::forward || !rule.backward_age;
  const std::int64_t read = batch + 1 - (forward ? rule.forward_age : *rule.backward_age);
  const std::int64_t ahead = forward ? rule.forward_predicts : rule.backward_predicts;
  return rule.only_real_updates ? std::max<std::int64_t>(0, read + ahead)
                                : std::max<std::int64_t>(0, read) + ahead;
}

// The batches between whose updates of stage 0 the pipeline is in its steady state.
std::pair<std::int64_t, std::int64_t> steady_batches(const Program& program, std::int64_t batches) {
  const std::int64_t last = batches - 1 - program.max_lag;
  // Periods can take turns, long and short ones, and repeat after as many as there are batches in flight.
  const std::int64_t longest = last - last / 2, in_flight = program.max_lag + 1;
  std::int64_t turn = 1;
  for (const std::int64_t t : {std::int64_t{2}, 2 * in_flight})
    if (t <= longest) turn = t;
  return {last - longest / turn * turn, last};
}

std::vector<SimulatedOp> ops_of(const Program& program, const StageProfile& profile,
                                const PipelineSchedule& schedule, const Timeline& timeline) {
  std::vector<std::vector<double>> updated(schedule.stages.size());  // when stages ended their updates
  std::vector<SimulatedOp> ops;
  for (const Span& span : timeline.spans) {
    const Instruction& s = program.instruction(span.instruction);
    const auto kind = kind_of(s, profile);
    if (!kind) continue;
    const auto stage = static_cast<std::size_t>(s.tag.stage);
    SimulatedOp& op = ops.emplace_back();
    op = {*kind,
          s.tag.stage,
          span.batch,
          *kind == SimulatedOp::Kind::update ? 0 : s.tag.microbatch,
          program.lane(span.lane).index,
          span.begin * kMsPerSecond,
          span.end * kMsPerSecond};
    if (*kind == SimulatedOp::Kind::update) updated[stage].push_back(op.end_ms);
    op.predicts = version_used(schedule.stages[stage].weights, s.tag.phase, span.batch);
  }
  for (SimulatedOp& op : ops) {
    const auto& ends = updated[static_cast<std::size_t>(op.stage)];
    op.version = std::ranges::upper_bound(ends, op.start_ms) - ends.begin();
    if (op.kind == SimulatedOp::Kind::update) op.version = op.batch;  // also if it takes no time
    if (op.kind != SimulatedOp::Kind::forward && op.kind != SimulatedOp::Kind::backward)
      op.predicts = op.version;
  }
  return ops;
}

// The largest number of micro-batches for which a stage keeps what its forward made.
int in_flight(const Program& program, int stage) {
  const auto unit = static_cast<std::int64_t>(program.instructions.size());
  std::vector<int> held(program.instructions.size(), 0);
  for (const Instruction& s : program.instructions) {
    const auto* op = as<StageOp>(s);
    if (!op || op->kind != StageOp::Kind::forward || s.tag.stage != stage) continue;
    const MemoryBlock& kept = program.block_of(s.writes[1]);
    for (std::int64_t at = kept.begin; at < kept.end; ++at) ++held[static_cast<std::size_t>(at % unit)];
  }
  return std::ranges::max(held);
}

std::vector<int> replicas_of_devices(const StageProfile& profile, const PipelineSchedule& schedule) {
  std::vector<int> replicas(static_cast<std::size_t>(schedule.devices()), 1);
  for (std::size_t k = 0; k < profile.stages.size(); ++k)
    replicas[static_cast<std::size_t>(schedule.stages[k].device)] = profile.stages[k].replicas;
  return replicas;
}

const UncutCost& uncut_of(const StageProfile& profile, const char* name) {
  if (!profile.uncut)
    throw Error(fmt::format("'{}' needs \"single_ms\" and \"sync_bytes\" in the profile", name));
  return *profile.uncut;
}

}  // namespace

std::string_view name_of(SimulatedOp::Kind kind) {
  switch (kind) {
    case SimulatedOp::Kind::forward: return "F";
    case SimulatedOp::Kind::backward: return "B";
    case SimulatedOp::Kind::send: return "SEND";
    case SimulatedOp::Kind::receive: return "RECV";
    case SimulatedOp::Kind::all_reduce: return "ALLREDUCE";
    case SimulatedOp::Kind::update: return "UPDATE";
  }
  return "";
}

void require_steady_state(const PipelineSchedule& schedule, std::int64_t batches) {
  const std::int64_t least = std::ranges::max(schedule.tasks, {}, &Task::lag).lag + 2;
  if (batches < least)
    throw Error(fmt::format("this schedule has no steady state in {}: give {} or more",
                            counted(batches, "batch"), least));
}

PipelineSimulation simulate_pipeline(const StageProfile& profile, const PipelineSchedule& schedule,
                                     std::int64_t batches) {
  require_steady_state(schedule, batches);
  const Program program = stage_program(profile, schedule);
  const auto [first, last] = steady_batches(program, batches);
  SimBackend sim(program);
  run(sim, batches);
  PipelineSimulation result;
  result.timeline = sim.timeline();
  result.ops = ops_of(program, profile, schedule, result.timeline);
  double begin = 0, end = 0;  // of the steady state
  for (const SimulatedOp& op : result.ops) {
    if (op.kind != SimulatedOp::Kind::update || op.stage != 0) continue;
    if (op.batch == first) begin = op.end_ms;
    if (op.batch == last) end = op.end_ms;
  }
  result.period_ms = (end - begin) / static_cast<double>(last - first);
  result.shares = device_shares(program, result.timeline, begin / kMsPerSecond, end / kMsPerSecond,
                                replicas_of_devices(profile, schedule));
  for (std::size_t k = 0; k < schedule.stages.size(); ++k) {
    result.in_flight.push_back(in_flight(program, static_cast<int>(k)));
    const auto w = std::ranges::find(program.states, fmt::format("stage {}.weight", k), &StateBlock::path);
    result.weight_versions.push_back(program.block(w->block).slots);
    const WeightRule& weights = schedule.stages[k].weights;
    result.staleness =
        std::max({result.staleness, weights.forward_age - 1, weights.backward_age.value_or(1) - 1});
  }
  result.peak_bytes = planned_peak(program);
  return result;
}

PipelineSimulation single_device(const StageProfile& profile) {
  PipelineSimulation result;
  result.period_ms = uncut_of(profile, "single").single_ms;
  result.shares.busy = 1;
  return result;
}

PipelineSimulation data_parallel(const StageProfile& profile) {
  const UncutCost& uncut = uncut_of(profile, "data");
  const int n = profile.devices();
  const LinkModel link{profile.link.latency_ms / kMsPerSecond, profile.link.bytes_per_ms * kMsPerSecond};
  const double compute_ms = uncut.data_compute_factor.value_or(1) * uncut.single_ms / n,
               sync_ms = all_reduce_seconds(link, uncut.sync_bytes, n) * kMsPerSecond;
  PipelineSimulation result;
  result.period_ms = compute_ms + sync_ms;
  result.shares = {.busy = compute_ms / result.period_ms, .transfer = sync_ms / result.period_ms};
  return result;
}

}  // namespace tandem::engine
