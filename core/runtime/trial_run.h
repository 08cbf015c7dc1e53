#pragma once
#include <map>
#include <string>
#include <vector>

#include <tandem/core/graph/kernel.h>
#include <tandem/core/graph/tensor.h>
#include <tandem/core/runtime/host.h>
#include <tandem/core/schedule/program.h>

namespace tandem::engine {

/// Seconds that each instruction of a Program takes alone, the median over some batches: all stages of one
/// replica run on the calling thread, instruction after instruction in list order, with the host's data, from
/// a given state, on memory as it was planned. So every kernel finds the values and the caches that it finds
/// in a real run. What ranks send is handed over in memory; what the other replicas would add to a sum is
/// left out. `state` by path, as for Session::load. Throws Error as a run does.
std::vector<double> instruction_seconds(const Program& program, const KernelTable& kernels, Host& host,
                                        const StateDict& state);

}  // namespace tandem::engine
