#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include <tandem/core/graph/kernel.h>
#include <tandem/core/runtime/cpu_backend.h>
#include <tandem/core/runtime/executable.h>

namespace tandem::engine {

/// One rank that this process runs: its memory and its lanes, which the Programs of a Session use in turn.
struct LocalRank {
  /// One Program, prepared for this rank.
  struct Prepared {
    Prepared(const Program& program, const RankContext& context, LocalRank& rank, const KernelTable& kernels,
             std::size_t spans, double origin)
        : executable(project(program, context.device), context, rank.memory, kernels),
          backend(executable, rank.lanes, spans, origin) {}
    Executable executable;
    CpuBackend backend;
  };
  RankContext context;
  RankMemory memory;
  CpuLanes lanes;
  std::map<int, std::unique_ptr<Prepared>> programs;  ///< by the Program's number in the Session
  std::map<Arena, std::int64_t> touched_by_dropped;   ///< bytes; their memory stays

  /// The highest byte of an arena that any Program has touched, also one that was dropped.
  std::int64_t touched(Arena arena) const;
  void drop(int program);
};
using LocalRanks = std::vector<std::unique_ptr<LocalRank>>;

/// Calls `f` for each rank, all at once, each on a thread of its own. Rethrows what the first failing rank
/// threw. If a thread cannot start, aborts the ranks' Comms, since ranks wait for each other.
void on_each_rank(const LocalRanks& ranks, const std::function<void(LocalRank&)>& f);

}  // namespace tandem::engine
