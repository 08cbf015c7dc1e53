#pragma once
#include <map>
#include <set>
#include <span>
#include <vector>

#include <tandem/core/graph.h>
#include <tandem/core/program.h>

namespace tandem {

/// Where a value shall lie when that is not a block of its own; `shift` as in Member.
struct Home {
  BlockId block = -1;
  std::int64_t offset = 0;
  int shift = 0;
  explicit operator bool() const { return block >= 0; }
};

/// Which values share blocks.
struct Homes {
  std::vector<Home> of;                   ///< per value
  std::map<ValueId, ValueId> overwrites;  ///< an output made in the place of a value -> that value
  std::set<NodeId> assigned_in_place;     ///< assigns whose value is made in the state's memory: no step
};

/// Finds them, before any step is made:
/// - the value that a state is assigned is made in the state's memory;
/// - the tensors of one all-reduce lie side by side, and are reduced where they are;
/// - an op that may work in place does so on an input that nobody uses later.
///
/// `program` has its states; it gets a block for each all-reduce. Throws Error where a value of
/// an all-reduce already has another place.
Homes find_homes(const Graph& graph, std::span<const NodeId> order, Program& program);

}  // namespace tandem
