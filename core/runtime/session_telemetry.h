#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <tandem/core/runtime/local_rank.h>
#include <tandem/core/runtime/timeline.h>
#include <tandem/core/schedule/program.h>

namespace tandem::engine {

// What a Session reports about its ranks. If ranks are processes, `comm` is this process's; all of them must
// call, and only `root` gets the whole.

/// The spans of Program `number` since the last call, by the instructions of the global `program`. Times
/// count from `origin`, seconds of this process's clock.
Timeline gathered_timeline(const LocalRanks& ranks, int number, const Program& program, double origin,
                           Comm* comm, int root);

/// Bytes of work and state that the Programs need together on a device: they share one arena of each kind, as
/// large as the largest Program needs.
std::int64_t planned_peak(const std::vector<const Program*>& programs, int device);
/// The same on the device that needs most.
std::int64_t planned_peak(const std::vector<const Program*>& programs);

/// Bytes touched so far, also by Programs that were dropped, on the rank that touched most.
std::int64_t executed_peak(const LocalRanks& ranks, Comm* comm, int root);

/// What the lanes of the local ranks, or of one of them, execute at this moment: "rank 1: batch 17,
/// instruction block2 receive, on device 1 receive from 0", one line per lane. A lane that is in no
/// instruction waits for another lane, or has ended. Any thread may call.
std::string doing(const LocalRanks& ranks, std::optional<int> rank = {});

}  // namespace tandem::engine
