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
IdVector<InstructionId, double> instruction_seconds(const Program& program, const KernelTable& kernels,
                                                    Host& host, const StateDict& state);

/// Returns how many times as long the compute instructions of a Program with swaps take while its copies move
/// beside them. They run as for `instruction_seconds`, first alone, then while another thread repeats all
/// copies, each over its link, between two buffers as large as the largest value. 1 if the Program has no
/// copies. Throws Error as a run does.
double copy_slowdown(const Program& program, const KernelTable& kernels, Host& host, const StateDict& state);

/// The seconds of a forward, of a backward with its update, and of both beside each other.
struct PassSeconds {
  double forward = 0, backward = 0, beside = 0;
};

/// Measures the passes of a Program with one device, one replica and one micro-batch, on `cores` of the cores
/// that this process can use: medians over some batches. `beside` is a forward in one copy of the memory
/// beside a backward in another, each on a thread of its own, from the begin of both to the end of both.
/// Throws Error as a run does.
PassSeconds pass_seconds(const Program& program, const KernelTable& kernels, Host& host,
                         const StateDict& state, int cores);

}  // namespace tandem::engine
