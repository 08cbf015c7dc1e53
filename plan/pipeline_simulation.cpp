#include <tandem/plan/pipeline_simulation.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include <tandem/core/base/error.h>
#include <tandem/core/runtime/sim_backend.h>
#include <tandem/dist/link.h>
#include <tandem/ops/update.h>
#include <tandem/plan/stage_program.h>

namespace tandem::engine {
namespace {

constexpr double kMsPerSecond = 1e3;

std::optional<SimulatedOp::Kind> kind_of(const Instruction& s) {
  using enum SimulatedOp::Kind;
  if (const auto* op = as<StageOp>(s)) return op->kind == StageOp::Kind::forward ? forward : backward;
  if (as<SgdUpdateOp>(s)) return update;
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
  if (last < 1)
    throw Error(fmt::format("this schedule has no steady state in {}: give {} or more",
                            counted(batches, "batch"), program.max_lag + 2));
  return {last / 2, last};
}

// A part of the time.
struct Interval {
  double begin = 0, end = 0;
  double seconds() const { return std::max(0.0, end - begin); }
  Interval within(const Interval& other) const {
    return {std::max(begin, other.begin), std::min(end, other.end)};
  }
};

// Divides the time of the devices into shares.
class Shares {
 public:
  Shares(const Program& program, const Timeline& timeline, Interval steady)
      : p_(program),
        steady_(steady),
        spans_(program.instructions.size()),
        ends_(program.instructions.size()) {
    for (const Span& span : timeline.spans) spans_[span.instruction].push_back(&span);
    std::map<std::int64_t, InstructionId> first;
    for (const InstructionId s : p_.instructions.ids()) {
      const std::int64_t channel = p_.instruction(s).channel;
      if (channel < 0 || p_.instruction(s).barrier) continue;
      if (const auto [found, is_new] = first.emplace(channel, s); !is_new)
        ends_[s] = found->second, ends_[found->second] = s;
    }
    for (int d = 0; d < p_.devices; ++d) add_device(timeline, d);
  }

  DeviceShares shares() const {
    const double all = steady_.seconds() * p_.devices;
    return {seconds_.busy / all, seconds_.transfer / all, seconds_.transfer_idle / all,
            seconds_.imbalance_idle / all};
  }

 private:
  void add_device(const Timeline& timeline, int device) {
    std::vector<const Span*> computed;
    std::vector<double> barriers;  // when they ended
    for (const Span& span : timeline.spans) {
      const Lane& lane = p_.lane(span.lane);
      if (lane.device != device || lane.kind != LaneKind::compute) continue;
      if (p_.instruction(span.instruction).barrier) barriers.push_back(span.end);
      if (span.end > span.begin) computed.push_back(&span);
    }
    std::ranges::sort(computed, {}, [](const Span* s) { return s->begin; });
    double busy_until = 0;
    for (const Span* span : computed) {
      add_wait(*span, {busy_until, span->begin}, barriers);
      seconds_.busy += Interval{std::max(busy_until, span->begin), span->end}.within(steady_).seconds();
      busy_until = std::max(busy_until, span->end);
    }
    // Freely running, a device can end its last batch before stage 0 does.
    seconds_.imbalance_idle += Interval{busy_until, steady_.end}.within(steady_).seconds();
  }

  // What the device waited for before an instruction: for a barrier, and then for the transfer that brings
  // its input, which waited for its link or moved. All else is another device's computation.
  void add_wait(const Span& next, Interval idle, const std::vector<double>& barriers) {
    const Interval whole = idle.within(steady_);
    if (whole.seconds() <= 0) return;
    const auto after = std::ranges::upper_bound(barriers, idle.end);
    if (after != barriers.begin()) idle.begin = std::max(idle.begin, *std::prev(after));
    double moves = 0, waits = 0;
    if (const Span* transfer = last_transfer(next)) {
      const Interval rest = idle.within(steady_);
      moves = Interval{transfer->begin, transfer->end}.within(rest).seconds();
      waits = Interval{ready(*transfer), transfer->begin}.within(rest).seconds();
    }
    seconds_.transfer += moves;
    seconds_.transfer_idle += waits;
    seconds_.imbalance_idle += whole.seconds() - moves - waits;
  }

  const Span* span_of(const Wait& wait, std::int64_t unit) const {
    const std::int64_t batch = unit - wait.back - p_.instruction(wait.instruction).lag;
    const auto& spans = spans_[wait.instruction];
    return batch < 0 || batch >= std::ssize(spans) ? nullptr : spans[static_cast<std::size_t>(batch)];
  }

  // Of the transfers that bring an instruction's inputs, the one that ended last.
  const Span* last_transfer(const Span& span) const {
    const Span* last = nullptr;
    for (const Wait& wait : p_.instruction(span.instruction).waits) {
      if (p_.lane_of(wait.instruction).kind != LaneKind::receive) continue;
      const Span* transfer = span_of(wait, span.unit);
      if (transfer && (!last || transfer->end > last->end)) last = transfer;
    }
    return last;
  }

  // When nothing but its link kept a transfer from starting.
  double ready(const Span& transfer) const {
    double time = 0;
    for (const InstructionId end : {transfer.instruction, ends_[transfer.instruction]})
      for (const Wait& wait : p_.instruction(end).waits)
        if (const Span* awaited = span_of(wait, transfer.unit)) time = std::max(time, awaited->end);
    return time;
  }

  const Program& p_;
  const Interval steady_;
  DeviceShares seconds_;
  IdVector<InstructionId, std::vector<const Span*>> spans_;  // by batch
  IdVector<InstructionId, InstructionId> ends_;              // the other end of a transfer
};

std::vector<SimulatedOp> ops_of(const Program& program, const PipelineSchedule& schedule,
                                const Timeline& timeline) {
  std::vector<std::vector<double>> updated(schedule.stages.size());  // when stages ended their updates
  std::vector<SimulatedOp> ops;
  for (const Span& span : timeline.spans) {
    const Instruction& s = program.instruction(span.instruction);
    const auto kind = kind_of(s);
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
    if (op.kind == SimulatedOp::Kind::update) op.version = op.batch;  // it takes no time
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
    case SimulatedOp::Kind::update: return "UPDATE";
  }
  return "";
}

PipelineSimulation simulate_pipeline(const StageProfile& profile, const PipelineSchedule& schedule,
                                     std::int64_t batches) {
  const Program program = stage_program(profile, schedule);
  const auto [first, last] = steady_batches(program, batches);
  SimBackend sim(program);
  run(sim, batches);
  PipelineSimulation result;
  result.timeline = sim.timeline();
  result.ops = ops_of(program, schedule, result.timeline);
  Interval steady;
  for (const SimulatedOp& op : result.ops) {
    if (op.kind != SimulatedOp::Kind::update || op.stage != 0) continue;
    if (op.batch == first) steady.begin = op.end_ms / kMsPerSecond;
    if (op.batch == last) steady.end = op.end_ms / kMsPerSecond;
  }
  result.period_ms = steady.seconds() * kMsPerSecond / static_cast<double>(last - first);
  result.shares = Shares(program, result.timeline, steady).shares();
  for (std::size_t k = 0; k < schedule.stages.size(); ++k) {
    result.in_flight.push_back(in_flight(program, static_cast<int>(k)));
    const auto w = std::ranges::find(program.states, fmt::format("stage {}.weight", k), &StateBlock::path);
    result.weight_versions.push_back(program.block(w->block).slots);
    result.staleness = std::max(result.staleness, schedule.stages[k].weights.forward_age - 1);
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
  const auto n = static_cast<int>(profile.stages.size());
  const LinkModel link{profile.link.latency_ms, profile.link.bytes_per_ms};  // in ms
  const double compute_ms = uncut.data_compute_factor * uncut.single_ms / n,
               sync_ms = all_reduce_seconds(link, uncut.sync_bytes, n);
  PipelineSimulation result;
  result.period_ms = compute_ms + sync_ms;
  result.shares = {.busy = compute_ms / result.period_ms, .transfer = sync_ms / result.period_ms};
  return result;
}

}  // namespace tandem::engine
