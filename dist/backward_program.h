#pragma once
#include <vector>

#include <tandem/core/runtime/timeline.h>
#include <tandem/core/schedule/program.h>
#include <tandem/dist/all_reduce_costs.h>

namespace tandem::engine {

/// Returns the simulator's cost of an all-reduce: q + a alone, and its rate and that of a computation beside
/// each other (Eqs. 5, 6).
Cost cost_of_all_reduce(double bytes, const ThreadRates& rates, const AllReduceCosts& costs);

/// Returns a Program of one backward pass for the simulator: a computation per layer on one lane, the groups'
/// all-reduces on another, and timers on a third, for the groups that begin at a time. Throws Error unless
/// the groups hold each layer once, in order.
Program backward_program(const std::vector<GradientLayer>& layers, const std::vector<AllReduceGroup>& groups,
                         const AllReduceCosts& costs);

struct SimulatedBackward {
  BackwardTimes times;
  double all_reduce_ms = 0;          ///< while an all-reduce runs
  std::vector<double> layer_end_ms;  ///< when the gradients of each layer are computed
  Timeline timeline;
};
/// Runs that Program in the simulator. It takes the time of LIBRA's Eqs. 8 to 15 (`backward_times`).
SimulatedBackward simulate_backward(const std::vector<GradientLayer>& layers,
                                    const std::vector<AllReduceGroup>& groups, const AllReduceCosts& costs);

}  // namespace tandem::engine
