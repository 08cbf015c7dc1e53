#pragma once
#include <tandem/core/schedule/program.h>

namespace tandem::engine {

/// The limits that `check_unplanned` accepts. A larger number is a typing error, and would be unrolled for
/// hours or overflow. kMaxBytes limits all blocks together; in kMaxSlots slots they stay below 2^63 bytes.
inline constexpr int kMaxDevices = 10'000, kMaxLag = 10'000, kMaxAge = 10'000, kMaxSlots = 10'000;
inline constexpr std::int64_t kMaxBytes = std::int64_t{1} << 48;

/// Checks an unplanned Program before anything is derived from it: ids are in range; every value that is read
/// has one producer, on the same device, at no greater lag and earlier in the list at equal lag; the ends of
/// a transfer or collective share one lag, and a transfer has both. Throws Error naming instructions and
/// values ("cycle", "missing value", "missing end").
void check_unplanned(const Program& program);

/// Derives the number of slots that each block needs: the number of indices in use at one time. For state
/// this is the number of weight versions held. If batches overlap and have one micro-batch, what a transfer
/// sends or brings has a slot more, for a whole unit of transfer. Slots given in advance are kept if larger.
Program with_slots(Program program);

/// Derives the waits: for data (a use at lag d′ of a value made at lag d waits d′ − d units back), for reuse
/// (the writer of a slot waits for its last users), and for barriers. Keeps waits given in advance, but
/// drops every wait that lane order or other waits already ensure.
Program with_waits(Program program);

}  // namespace tandem::engine
