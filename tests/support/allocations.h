#pragma once

namespace tandem::testing {

// Counts calls of operator new in this program, by all threads, if the program links allocations.cpp.
// Sanitizers bring their own allocator: under them nothing is counted and nothing fails.

/// The number of calls so far.
long allocations();
/// The number of allocations that are not freed yet.
long live_allocations();
/// After `n` more calls one call throws std::bad_alloc; if `n` is negative, none does.
void fail_allocation_after(long n);

}  // namespace tandem::testing
