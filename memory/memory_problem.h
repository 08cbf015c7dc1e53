#pragma once
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <tandem/core/graph/tag.h>
#include <tandem/ops/copy_link.h>

namespace tandem::engine {

/// A value of a MemoryProblem. Only `intermediate` ones may be copied to the host, and computed again.
struct MemoryValue {
  enum class Kind {
    parameter,     ///< counted in `static_bytes`, and always there
    gradient,      ///< of weights
    input,         ///< there at the start
    intermediate,  ///< of forward or backward
    output,        ///< there at the end
  };
  std::int64_t id;  ///< unique in the problem
  std::int64_t bytes;
  Kind kind;
};

/// A computation. Its workspace counts while it runs.
struct MemoryNode {
  std::string name;
  Phase phase;
  double run_ms;
  std::int64_t workspace_bytes;
  std::vector<int> inputs, outputs;  ///< places in MemoryProblem::values
};

struct MemoryGraph {
  std::string name;
  /// In list order. Of a ring forward comes first, then backward and update; otherwise it may come again, as
  /// of a second array of models, but then it reads nothing that backward has read.
  std::vector<MemoryNode> nodes;
  /// Returns the number of nodes of forward.
  int forward_nodes() const {
    return static_cast<int>(std::ranges::count(nodes, Phase::forward, &MemoryNode::phase));
  }
};

/// What a memory plan plans: one training step of one graph; or one period of a ring of graphs that take
/// turns: beside the backward and update of each, the next graph computes its forward, and beside those of
/// the last, graph 0 its next forward. A ring of two is a pair.
struct MemoryProblem {
  std::vector<MemoryGraph> graphs;  ///< of a step: one; of a ring: two or more
  std::vector<MemoryValue> values;  ///< of all graphs
  CopyLink link;
  std::int64_t static_bytes;  ///< of what is always there: parameters, states of optimizers
  /// For the policy `lists`: values to move to the host, and to compute again; all others stay.
  struct Lists {
    std::vector<int> swap{}, recompute{};
  };
  Lists lists{};

  bool is_ring() const { return graphs.size() > 1; }
  /// The graph of a ring whose forward is computed beside the backward of `graph`.
  int next_in_ring(int graph) const { return (graph + 1) % static_cast<int>(graphs.size()); }
  bool can_copy() const { return link.bytes_per_ms > 0; }
  double copy_ms(int value) const {
    return static_cast<double>(values[static_cast<std::size_t>(value)].bytes) / link.bytes_per_ms;
  }
};

/// Reads a problem from a JSON file (docs/memory.md). Throws Error naming the file, and saying where it is
/// malformed: unknown or missing keys, numbers out of range, ids that are unknown or doubled, values that two
/// nodes make or that are read before they are made, phases of a ring out of order, lists with values that
/// forward does not make for backward.
MemoryProblem read_memory_problem(const std::string& file);
/// Returns the text of such a file.
std::string to_json(const MemoryProblem& problem);
/// Returns a checksum of everything but times and lists: two problems with the same one take the same plans.
std::string checksum_of(const MemoryProblem& problem);

}  // namespace tandem::engine
