#pragma once
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include <tandem/core/schedule/program.h>
#include <tandem/pipeline/pipeline_schedule.h>
#include <tandem/plan/stage_profile.h>

namespace tandem::engine {

/// F or B of a stage that is known only by its costs. F: (x, w) -> (y, kept), B: (∂y, kept, w) -> (∂x, ∂w);
/// y of the last stage is the loss.
class StageOp final : public Op {
 public:
  enum class Kind : std::uint8_t { forward, backward };
  StageOp(Kind kind, Types outputs) : kind(kind), outputs(std::move(outputs)) {}
  std::string_view name() const override { return kind == Kind::forward ? "stage" : "stage_grad"; }
  Types infer(TypesView) const override { return outputs; }
  Tensors vjp(const VjpArgs& args) const override;
  Tensors vmap(const VmapArgs& args) const override;
  Work cost(TypesView, TypesView) const override { return {}; }
  std::vector<Alias> may_alias(TypesView) const override { return {}; }

  const Kind kind;
  const Types outputs;
};

/// Throws Error if the schedule is of another number of stages, or if it has several stages on a device and a
/// stage has replicas.
void require_stages(const StageProfile& profile, const PipelineSchedule& schedule);

/// Returns the Program that `build` makes of a chain of such stages under a schedule, trained by SGD with
/// momentum: with its transfers, its slots, and the profile's times as costs. It is for the simulator, and
/// has no kernels. A micro-batch takes its share of a batch's time and bytes.
///
/// The replicas of a stage are one device of it, which is as fast as all of them together, and keeps what one
/// of them keeps. Each has a link of its own to the stage before. They reduce their gradients between the
/// backward of the last micro-batch and the update, once per batch. If several batches are in flight,
/// replicas take whole batches in turn, and reduce and update once per round; a batch then has its share of
/// that.
///
/// Throws the Errors of `require_stages` and of `build`.
Program stage_program(const StageProfile& profile, const PipelineSchedule& schedule);

/// Whether an instruction of such a Program reduces the gradients of a stage with replicas.
bool is_all_reduce_of_stage(const Instruction& s, const StageProfile& profile);

}  // namespace tandem::engine
