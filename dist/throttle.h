#pragma once
#include <memory>

#include <tandem/core/runtime/comm.h>
#include <tandem/dist/link.h>

namespace tandem::engine {

/// Returns a Comm that is as slow as `link`, or slower if `inner` is. From the moment every end has called:
///   - a transfer takes at least `transfer_seconds`, an all-reduce at least `all_reduce_seconds`
///     (LIBRA Eqs. 3, 4), a barrier at least `barrier_seconds`, at every end;
///   - transfers over one link in one direction run one after another; an all-reduce occupies the links of
///     the group's ring.
/// It sleeps instead of spinning, and moves the same bytes as `inner`. Every rank must be throttled, because
/// the ends meet through one more small message on the same channel. Throws Error if `inner` is null, or if
/// the latency or bandwidth of `link` is negative or not finite.
std::unique_ptr<Comm> throttle(std::unique_ptr<Comm> inner, const LinkModel& link);

}  // namespace tandem::engine
