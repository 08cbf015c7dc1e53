#pragma once
#include <tandem/core/schedule/program.h>

namespace tandem::engine {

/// Proves a planned Program before it runs, from its instructions, waits and addresses alone (nothing the
/// planner derived on the way is trusted). Throws Error on the first violation.
///
/// - `verify_progress`: no deadlock. All lanes of all devices are run symbolically, every transfer and
///   collective as a rendezvous; the error lists the lanes that are stuck.
/// - `verify_memory`: no race and no lost value. Warm-up, max lag + 2·max slots units and the drain are
///   unrolled; two executions that touch common bytes, one of them writing, need a happens-before path, and
///   every read must find the value and the batch (the state and the version) that it is meant to read. An
///   instruction overwrites its own inputs only in place, blocks share bytes only if they have equally many
///   slots, and after the run every state, used or not, has its current version.
/// - `verify_extents`: every address is aligned and lies inside the planned arenas.
void verify(const Program& program);
void verify_progress(const Program& program);
void verify_memory(const Program& program);
void verify_extents(const Program& program);

}  // namespace tandem::engine
