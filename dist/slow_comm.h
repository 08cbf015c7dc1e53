#pragma once
#include <memory>

#include <tandem/core/runtime/comm.h>
#include <tandem/dist/link.h>

namespace tandem::engine {

/// Returns a Comm whose transfers, sums, and barriers take the time of a link, though `inner` moves the data
/// in memory: for ranks that are threads. Each rank has one link out and one link in. The bytes of a transfer
/// occupy both ends' links, and it arrives a latency later; an all-reduce occupies them for ĉ bytes, and
/// takes two latencies (CollectiveAlgorithm::direct). A call sleeps once, until its end, because messages of
/// their own would take cores from computation, which a network card does not. `others` makes the other
/// collectives. Throws Error if latency or bandwidth is negative or not finite.
std::unique_ptr<Comm> slow_comm(std::unique_ptr<Comm> inner, std::unique_ptr<Comm> others,
                                const LinkModel& link);

}  // namespace tandem::engine
