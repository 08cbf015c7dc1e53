#pragma once

namespace tandem::test {

/// Calls of operator new in this program so far, by any thread. Link allocations.cpp. Always 0 under
/// sanitizers, which bring their own allocator.
long allocations();

}  // namespace tandem::test
