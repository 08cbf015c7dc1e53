#pragma once
#include <array>
#include <vector>

#include <tandem/memory/memory_problem.h>
#include <tandem/memory/optimal_label.h>

namespace tandem::engine::optimal {

/// A MemoryProblem as the search for the optimal plan sees it: its values, numbered without the parameters,
/// as sets; and each graph's nodes in the order of the period, of which a place is a number of nodes that
/// ran.
class NumberedProblem {
 public:
  /// Throws Error if there are more than 64 values beside parameters.
  explicit NumberedProblem(const MemoryProblem& problem);

  const MemoryProblem& problem() const { return p_; }
  MemoryValue::Kind kind(int v) const { return p_.values[static_cast<std::size_t>(v)].kind; }
  /// Returns the set of one value; sets leave out parameters.
  Set set_of(int v) const { return sets_[static_cast<std::size_t>(v)]; }
  /// Returns the value with this number.
  int value(int number) const { return values[static_cast<std::size_t>(number)]; }
  std::int64_t bytes_of(Set s) const;
  const MemoryNode& node(int g, int n) const {
    return p_.graphs[static_cast<std::size_t>(g)].nodes[static_cast<std::size_t>(n)];
  }
  /// Return what graph g's node n reads, and what it makes.
  Set read_by(int g, int n) const {
    return node_sets_[static_cast<std::size_t>(g)][static_cast<std::size_t>(n)].in;
  }
  Set made_by(int g, int n) const {
    return node_sets_[static_cast<std::size_t>(g)][static_cast<std::size_t>(n)].out;
  }
  /// Returns graph g's node at a place of the period.
  const MemoryNode& at(int g, int place) const {
    return node(g, order[static_cast<std::size_t>(g)][static_cast<std::size_t>(place)]);
  }
  Set read_at(int g, int place) const {
    return read_by(g, order[static_cast<std::size_t>(g)][static_cast<std::size_t>(place)]);
  }
  Set made_at(int g, int place) const {
    return made_by(g, order[static_cast<std::size_t>(g)][static_cast<std::size_t>(place)]);
  }
  int graphs() const { return static_cast<int>(order.size()); }
  int places(int g) const { return static_cast<int>(order[static_cast<std::size_t>(g)].size()); }
  double left_ms(int g, int place) const {
    return left_ms_[static_cast<std::size_t>(g)][static_cast<std::size_t>(place)];
  }
  /// Returns what nodes from this place on read, and none of them makes before.
  Set read_later(int g, int place) const {
    return read_later_[static_cast<std::size_t>(g)][static_cast<std::size_t>(place)];
  }
  /// The same of all graphs, from where the label has come to.
  Set read_later(const Label& l) const {
    Set s = 0;
    for (int g = 0; g < graphs(); ++g) s |= read_later(g, l.ran[static_cast<std::size_t>(g)]);
    return s;
  }
  /// Whether node n of graph g would make what it made before: no update has changed its parameters.
  bool may_repeat(const Label& l, int g, int n) const {
    return l.ran[static_cast<std::size_t>(g)] <=
           repeated_until_[static_cast<std::size_t>(g)][static_cast<std::size_t>(n)];
  }

  struct Maker {
    int graph = -1, node = -1;
  };
  std::vector<int> values;  ///< all but parameters
  Set inputs = 0, outputs = 0, intermediate = 0, of_forward = 0;
  Set crossing = 0;  ///< of a pair: what graph 0's backward reads of its forward, and the sources of that
  std::vector<std::vector<int>> order;     ///< per graph: its nodes in the order of the period
  std::array<Maker, kMostValues> maker{};  ///< of each value of forward

 private:
  Set union_of(const std::vector<int>& values) const;
  void number_values();
  void find_crossing();
  void find_last_repeats(int g);

  const MemoryProblem& p_;
  struct NodeSets {
    Set in, out;
  };
  std::vector<Set> sets_;                         // per value
  std::vector<std::vector<NodeSets>> node_sets_;  // per graph and node
  std::vector<std::vector<double>> left_ms_;
  std::vector<std::vector<Set>> read_later_;
  std::vector<std::vector<int>> repeated_until_;  // per graph and node: as long as at most so many have run
};

}  // namespace tandem::engine::optimal
