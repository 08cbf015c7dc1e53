#include <tandem/plan/stage_program.h>

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include <tandem/core/base/error.h>
#include <tandem/core/base/units.h>
#include <tandem/core/graph/scope.h>
#include <tandem/core/graph/trace.h>
#include <tandem/dist/link.h>
#include <tandem/ops/apply.h>
#include <tandem/ops/collective.h>
#include <tandem/ops/update.h>
#include <tandem/pipeline/schedule_costs.h>
#include <tandem/plan/build.h>

namespace tandem::engine {

Tensors StageOp::vjp(const VjpArgs& args) const {
  const Tensor &x = args.inputs[0], &w = args.inputs[1], &kept = args.outputs[1];
  return apply_op(std::make_shared<StageOp>(Kind::backward, Types{x.type(), w.type()}),
                  {args.grads[0], kept, w});
}

Tensors StageOp::vmap(const VmapArgs&) const { no_rule(*this, "vmap", "it stands for a stage of one model"); }

namespace {

// As many f32 as fit into these bytes, at least one.
TensorType floats(double bytes) {
  return {DType::f32, {std::max<std::int64_t>(1, static_cast<std::int64_t>(bytes / 4))}};
}

// Every module is a stage: "stage 0", "stage 1", …
std::string module_of(std::size_t stage) { return fmt::format("stage {}", stage); }

Graph chain(const StageProfile& profile, const PipelineSchedule& schedule) {
  const int microbatches = schedule.microbatches();
  const bool in_turn = schedule.overlaps_batches();
  Graph graph;
  Trace trace(graph);
  Tensor x = trace.input("samples", floats(0));
  for (std::size_t k = 0; k < profile.stages.size(); ++k) {
    const StageCost& stage = profile.stages[k];
    const Scope scope(module_of(k));
    const StateId w = graph.add_state({module_of(k) + ".weight", floats(stage.weight_bytes), true});
    const bool is_last = k + 1 == profile.stages.size();
    // Of a micro-batch, so that all that are held have the bytes that one replica keeps.
    const int held = held_activations(schedule, static_cast<int>(k));
    const double batches = held_batches(held, microbatches, stage.replicas, in_turn) / held;
    const TensorType kept = floats(stage.resident_bytes.value_or(stage.activation_bytes) * batches);
    const int parts = is_last || in_turn ? 1 : std::min(stage.replicas, profile.stages[k + 1].replicas);
    const TensorType y =
        is_last ? TensorType{DType::f32, {}} : floats(stage.activation_bytes / microbatches / parts);
    x = trace.apply(std::make_shared<StageOp>(StageOp::Kind::forward, Types{y, kept}), {x, trace.read(w)})[0];
  }
  trace.result("loss", x);
  return graph;
}

// What it costs to do a part of a batch. The replicas of a stage count as one device that is as fast as all
// of them together, and so is its link.
class Costs {
 public:
  Costs(const StageProfile& profile, const PipelineSchedule& schedule)
      : profile_(profile), parts_(schedule.microbatches()), in_turn_(schedule.overlaps_batches()) {}

  double ms(const Instruction& s) const {
    const StageCost& stage = of(s.tag.stage);
    if (const auto* op = as<StageOp>(s))
      return (op->kind == StageOp::Kind::forward ? stage.forward_ms : stage.backward_ms) / parts_ /
             stage.replicas;
    if (as<SgdUpdateOp>(s)) return stage.update_ms / rounds(stage);
    if (is_all_reduce_of_stage(s, profile_)) return all_reduce_ms(stage);
    if (!s.op || s.op->lane() != LaneKind::send) return 0;  // a receive takes the time of its send
    const int later = s.tag.phase == Phase::forward ? s.tag.stage + 1 : s.tag.stage;
    const int replicas = of(later).replicas;
    const double bytes = of(later - 1).activation_bytes / parts_;
    return in_turn_ ? transfer_ms(bytes) / replicas : transfer_ms(bytes / replicas);
  }

 private:
  const StageCost& of(int stage) const { return profile_.stages[static_cast<std::size_t>(stage)]; }

  // Batches for which a stage reduces and updates once.
  int rounds(const StageCost& stage) const { return in_turn_ ? stage.replicas : 1; }

  LinkModel link() const {
    return {profile_.link.latency_ms / kMsPerSecond, profile_.link.bytes_per_ms * kMsPerSecond};
  }
  double transfer_ms(double bytes) const { return transfer_seconds(link(), bytes) * kMsPerSecond; }
  // As the partitioner counts it (docs/pipelines.md, "How it cuts").
  double all_reduce_ms(const StageCost& stage) const {
    return all_reduce_seconds(link(), 2 * stage.weight_bytes, stage.replicas) * kMsPerSecond / rounds(stage);
  }

  const StageProfile& profile_;
  const double parts_;
  const bool in_turn_;
};

int most_replicas(const StageProfile& profile) {
  return std::ranges::max(profile.stages, {}, &StageCost::replicas).replicas;
}

// The rate with which F and B of a device that begin together take max(F, B, ρ(F + B)): in the simulator they
// take 2ρ'·min(F, B) + |F − B|.
double simulated_corun(double corun, double forward, double backward) {
  const double wanted =
      (corun * (forward + backward) - std::abs(forward - backward)) / (2 * std::min(forward, backward));
  return std::clamp(wanted, 0.5, 1.0);
}

std::vector<double> coruns(const StageProfile& profile, const PipelineSchedule& schedule) {
  std::vector<StageCost> devices(static_cast<std::size_t>(schedule.devices()));
  for (std::size_t k = 0; k < profile.stages.size(); ++k) {
    StageCost& device = devices[static_cast<std::size_t>(schedule.stages[k].device)];
    device.forward_ms += profile.stages[k].forward_ms;
    device.backward_ms += profile.stages[k].backward_ms;
  }
  std::vector<double> result;
  for (const StageCost& d : devices)
    result.push_back(simulated_corun(profile.corun, d.forward_ms, d.backward_ms));
  return result;
}

}  // namespace

bool is_all_reduce_of_stage(const Instruction& s, const StageProfile& profile) {
  const bool is_loss = !s.inputs.empty() && s.inputs[0].shape.empty();
  return as<AllReduceOp>(s) && !is_loss && profile.stages[static_cast<std::size_t>(s.tag.stage)].replicas > 1;
}

void require_stages(const StageProfile& profile, const PipelineSchedule& schedule) {
  if (profile.stages.size() != schedule.stages.size())
    throw Error(fmt::format("a schedule of {} for a profile of {}",
                            counted(std::ssize(schedule.stages), "stage"), profile.stages.size()));
  if (most_replicas(profile) > 1 && schedule.devices() < std::ssize(schedule.stages))
    throw Error("replicas of stages: a schedule with several stages on one device takes none");
}

Program stage_program(const StageProfile& profile, const PipelineSchedule& schedule) {
  require_stages(profile, schedule);
  // Any number of replicas has the same instructions.
  Strategy strategy = with_schedule({.replicas = std::min(most_replicas(profile), 2),
                                     .recompute_cheap = false,
                                     .optimizer = SgdOptions{.momentum = 0.9},
                                     .kernels = nullptr},
                                    schedule);
  for (std::size_t k = 1; k < profile.stages.size(); ++k) strategy.cuts.push_back(module_of(k));
  Program program = build(chain(profile, schedule), strategy);
  const Costs costs(profile, schedule);
  for (Instruction& s : program.instructions) s.cost.seconds = costs.ms(s) / kMsPerSecond;
  program.corun = coruns(profile, schedule);
  program.duplex = profile.link.duplex;
  return program;
}

}  // namespace tandem::engine
