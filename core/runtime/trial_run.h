#pragma once
#include <vector>

#include <tandem/core/graph/kernel.h>
#include <tandem/core/graph/tensor.h>
#include <tandem/core/runtime/host.h>
#include <tandem/core/schedule/program.h>

namespace tandem::engine {

/// Returns the seconds that each instruction of a Program takes alone: the median over some batches. All
/// devices of one replica run on the calling thread, instruction after instruction in list order, with the
/// host's data, from a given state, in memory as planned. So every kernel finds the values and the caches of
/// a real run. Messages between ranks are handed over in memory; sums leave out the other replicas. `state`
/// is by path, as for Session::load. Throws Error as a run does.
std::vector<double> instruction_seconds(const Program& program, const KernelTable& kernels, Host& host,
                                        const StateDict& state);

}  // namespace tandem::engine
