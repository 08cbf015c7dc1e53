#include <tandem/core/schedule/verify.h>

#include <fmt/format.h>

#include <tandem/core/base/error.h>
#include <tandem/core/base/memory.h>
#include <tandem/core/schedule/accesses.h>
#include <tandem/core/schedule/waits.h>

namespace tandem::engine {

void verify_extents(const Program& p) {
  const auto accesses = accesses_by_block(p);
  for (std::size_t id = 0; id < p.blocks.size(); ++id) {
    const MemoryBlock& b = p.blocks[id];
    if (accesses[id].empty() && b.arena != Arena::state) continue;  // never addressed
    const DeviceMemory& memory = p.memory.at(static_cast<std::size_t>(b.device));
    const std::int64_t extent = b.arena == Arena::work    ? memory.work
                                : b.arena == Arena::state ? memory.state
                                                          : memory.host;
    if (static_cast<int>(b.offsets.size()) != b.slots)
      throw Error(fmt::format("block '{}' is not placed", b.name));
    for (auto offset : b.offsets)
      if (offset < 0 || offset % kAlignment != 0 || offset + b.bytes > extent)
        throw Error(
            fmt::format("block '{}' at {} + {} is not aligned, or lies outside the {} arena of {} bytes",
                        b.name, offset, b.bytes, name_of(b.arena), extent));
  }
}

void verify(const Program& p) {
  check_unplanned(p);
  for (const Instruction& s : p.instructions)
    if (s.lag > p.max_lag)
      throw Error(
          fmt::format("the Program drains for {} units, but '{}' has lag {}", p.max_lag, s.name, s.lag));
  verify_extents(p);
  verify_progress(p);
  verify_memory(p);
}

}  // namespace tandem::engine
