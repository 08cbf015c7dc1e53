#pragma once
#include <memory>

#include <tandem/core/runtime/comm.h>
#include <tandem/dist/link.h>

namespace tandem::engine {

/// A Comm as slow as the given link, or slower where `inner` is: from the moment every end has called,
///   - a transfer takes at least `transfer_seconds`, an all-reduce at least `all_reduce_seconds`
///     (LIBRA Eqs. 3, 4), a barrier at least `barrier_seconds`, at every end;
///   - what goes over one link in one direction goes one after the other, all-reduces over the links of the
///     group's ring.
/// Sleeps instead of spinning. Moves the same bytes as `inner`, so the same bits. Every rank must be
/// throttled, since ends meet by one more small message on the same channel. Throws Error on a negative or
/// infinite model.
std::unique_ptr<Comm> throttle(std::unique_ptr<Comm> inner, const LinkModel& link);

}  // namespace tandem::engine
