#pragma once

namespace tandem::testing {

// Of operator new in this program, by any thread. Link allocations.cpp. Under sanitizers, which bring their
// own allocator, nothing is counted and nothing fails.

/// Calls so far.
long allocations();
/// What was allocated and is not freed.
long live_allocations();
/// After `n` more calls one throws std::bad_alloc; negative: none does.
void fail_allocation_after(long n);

}  // namespace tandem::testing
