#pragma once
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tandem/memory/memory_problem.h>

namespace tandem::engine {

/// One instruction of a memory plan. Instructions of the compute lane run one after the other; copies run
/// beside them.
struct MemoryStep {
  enum class Kind {
    alloc,      ///< `value` has memory on the device from here on; its bytes are undefined
    free,       ///< `value` has none any more
    run,        ///< node `node` of graph `graph` computes its outputs, whose host copies are stale then
    recompute,  ///< the same again, for the outputs of a forward node
    d2h,        ///< `value` begins to move to the host, where it stays
    h2d,        ///< `value` begins to move from the host to its memory on the device
    wait,       ///< the compute lane waits for the last copy of `value`
  };
  Kind kind;
  int value = -1;  ///< place in MemoryProblem::values
  int graph = -1, node = -1;
  bool operator==(const MemoryStep&) const = default;
};
std::string_view name_of(MemoryStep::Kind kind);
/// Throws Error if there is none of this name.
MemoryStep::Kind memory_step_kind(std::string_view name);

/// A list of instructions. Bytes change only at places of the list, never when a copy happens to end: a wrong
/// prediction of times makes a step slower, and leaves its peak as it is.
struct MemoryPlan {
  std::vector<MemoryStep> steps;
  /// Of a ring: values of graph 0's forward that are on the device, or on the host, at the start of the
  /// period, and so again at its end.
  std::vector<int> resident_at_start, host_at_start;
};

/// What a plan costs.
struct MemoryCost {
  std::int64_t peak_bytes = 0;  ///< of static bytes, live values and the running node's workspace
  double time_ms = 0;           ///< of the compute lane, until it is done
  double stall_ms = 0;          ///< of waits for copies
  double recompute_ms = 0;
};

/// A plan, and what it costs.
struct CostedPlan {
  MemoryPlan plan;
  MemoryCost cost;
};

/// How far a plan is above a limit in bytes, and its time in ms. The smaller, the better.
using PlanRank = std::pair<std::int64_t, double>;
PlanRank rank_of(const MemoryCost& cost, std::int64_t limit);
/// Every plan ranks below this.
inline constexpr PlanRank kWorst{std::numeric_limits<std::int64_t>::max(),
                                 std::numeric_limits<double>::infinity()};

/// When a lane carried out an instruction of a plan: `run` and `recompute` on the compute lane, `wait` where
/// that stood still, copies on a channel.
struct MemorySpan {
  MemoryStep step;
  double begin_ms, end_ms;
  std::int64_t live_bytes;  ///< when it begins
};

/// Executes a plan on paper. Copies queue in order, on one channel each way, or on one for both if the link
/// is not duplex; a copy begins when the channel is free and the compute lane has come to it. Throws Error
/// naming the instruction if it does what cannot be done: it reads bytes that are undefined or not there;
/// reads, frees or overwrites a value under copy; copies or recomputes what may not be; runs a node twice or
/// out of order. The same if a node is missing at the end, an output is not there, a copy was not waited for,
/// or a ring's period does not end as it began.
MemoryCost replay(const MemoryProblem& problem, const MemoryPlan& plan);
/// Returns the most bytes that a plan has on the host at once. A value is there from the instruction that
/// copies it there to the wait for its last copy; in a ring, the two can be in different periods.
std::int64_t host_peak(const MemoryProblem& problem, const MemoryPlan& plan);
/// As `replay`; returns what the lanes did, in the order of the list.
std::vector<MemorySpan> spans_of(const MemoryProblem& problem, const MemoryPlan& plan);

}  // namespace tandem::engine
