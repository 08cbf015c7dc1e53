#pragma once
#include <tandem/core/schedule/program.h>

namespace tandem::engine {

/// The most of each that `check_schedule` lets pass: more is a slip of the pen, and would be unrolled for
/// hours or overflow. Bytes are those of all blocks together; they stay below 2^63 in any number of slots.
inline constexpr int kMaxDevices = 10'000, kMaxLag = 10'000, kMaxAge = 10'000, kMaxSlots = 10'000;
inline constexpr std::int64_t kMaxBytes = std::int64_t{1} << 48;

/// Checks what a schedule must satisfy before anything can be derived from it: ids in range, every value
/// that is read has one producer, on the same device, at no greater lag and earlier in the list at equal
/// lag; the ends of a transfer or collective share one lag, and a transfer has both. Throws Error naming
/// instructions and values ("cycle", "missing value", "missing end").
void check_unplanned(const Program& program);

/// Derives how many slots each block needs: as many as there are indices in use at one time.
/// For state this is the number of weight versions held. Slots given in advance are kept if larger.
Program with_slots(Program program);

/// Derives the waits: for data (a use at lag d′ of what was made at lag d waits d′ − d units back), for
/// reuse (a slot's writer waits for whoever used it last), and for barriers. Leaves out what lane order or
/// other waits already ensure; keeps waits given in advance.
Program with_waits(Program program);

}  // namespace tandem::engine
