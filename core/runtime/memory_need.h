#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <tandem/core/base/memory.h>
#include <tandem/core/runtime/comm.h>

namespace tandem::engine {

/// What one process is about to take.
struct MemoryNeed {
  std::int64_t bytes = 0;
  int ranks = 0;                  ///< those of the process
  std::vector<MemoryPool> pools;  ///< it takes from each of these
};

/// A pool has less than is needed.
struct Shortage {
  std::int64_t needed = 0, free = 0;  ///< bytes, those of all processes that take from the pool
  int ranks = 0;                      ///< how many need them
};

/// Returns for each process the pool in which most is missing, if anything is. Processes measure what is free
/// at different moments; the least counts.
std::vector<std::optional<Shortage>> shortages(std::span<const MemoryNeed> needs);

/// The same for this process, and whether any process is short. If ranks are processes, all of them must call
/// before any of them takes what it needs; `comm` is null otherwise.
struct MemoryVerdict {
  bool fits = true;  ///< everywhere
  std::optional<Shortage> here;
};
MemoryVerdict check_memory(const MemoryNeed& mine, Comm* comm);

}  // namespace tandem::engine
