#pragma once
#include <set>
#include <vector>

#include <tandem/core/graph/graph.h>
#include <tandem/core/graph/kernel.h>
#include <tandem/core/graph/tensor.h>
#include <tandem/core/runtime/host.h>
#include <tandem/core/schedule/program.h>
#include <tandem/plan/stage_profile.h>
#include <tandem/plan/strategy.h>

namespace tandem::engine {

/// Work memory that forward writes and backward of some stages reads.
struct KeptBlock {
  std::set<int> stages;
  double bytes = 0;
};
/// Returns all of a training Program, but for predicted weights, which depend on the schedule.
std::vector<KeptBlock> kept_blocks(const Program& program);

/// Returns what a batch costs on each stage of a training Program whose instructions have their costs
/// (core/runtime/profile.h), without predictions, which depend on the schedule. `activation_bytes` are of all
/// values that transfers of F carry over the cut behind the stage, `weight_bytes` of the trained states that
/// the stage updates, `resident_bytes` of its kept blocks.
std::vector<StageCost> stage_costs(const Program& program);

// Measurements of training by `strategy`, but on one device. `forward` is of a micro-batch. They throw Error
// as a run does.

/// Returns the milliseconds of a whole batch with its update, the micro-batches in turn.
double measured_batch_ms(const Graph& forward, const Strategy& strategy, Host& host, const StateDict& state);

/// Returns ρ of `cores` cores: the time of a forward beside a backward of another micro-batch, both of the
/// whole network, over that of one after the other; between 0.5 and 1.
double measured_corun(const Graph& forward, const Strategy& strategy, Host& host, const StateDict& state,
                      int cores);

}  // namespace tandem::engine
