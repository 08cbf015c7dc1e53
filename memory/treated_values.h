#pragma once
#include <cstddef>
#include <utility>
#include <vector>

#include <tandem/memory/memory_decisions.h>
#include <tandem/memory/merged_list.h>

namespace tandem::engine {

/// What decisions mean for each place of the merged list: which nodes are repeated before it, which values
/// are there, and where these are read next. One object serves many decisions, one after the other, in memory
/// that it keeps. It keeps a reference to the problem.
class TreatedValues {
 public:
  explicit TreatedValues(const MemoryProblem& problem) : p_(problem) {}

  /// Returns false if a value cannot be computed again where that is decided.
  bool decide(const MemoryDecisions& decisions);
  /// The time of all nodes, with those that are repeated, if no copy is waited for.
  double time_without_stalls() const;
  /// What follows must be called only after this, and not again before the next `decide`.
  void find_places();

  int places() const { return static_cast<int>(list_.nodes.size()); }
  NodePlace place(int i) const { return list_.nodes[static_cast<std::size_t>(i)]; }
  const MemoryNode& node(NodePlace place) const {
    return p_.graphs[static_cast<std::size_t>(place.graph)].nodes[static_cast<std::size_t>(place.node)];
  }
  const MemoryNode& node(int i) const { return node(place(i)); }
  bool is_forward(int i) const { return is_forward_[static_cast<std::size_t>(i)]; }
  /// What a node makes and reads, but for parameters.
  struct Operand {
    int value;
    bool ends;  ///< unless anything is repeated, its pass does not use the value any more
  };
  const std::vector<Operand>& operands(int i) const { return operands_[static_cast<std::size_t>(i)]; }
  const Uses& uses(int v) const { return list_.uses[static_cast<std::size_t>(v)]; }
  MemoryValue::Kind kind(int v) const { return p_.values[static_cast<std::size_t>(v)].kind; }

  /// The decision, or `retain` where it cannot apply.
  Treatment treated(int v) const { return treated_[static_cast<std::size_t>(v)]; }
  const std::vector<int>& swapped() const { return swapped_; }
  /// Of a ring: values that the next period's backward reads.
  const std::vector<int>& wrapping() const { return wrapping_; }
  /// The nodes that are repeated before the node at place i, in order.
  const std::vector<NodePlace>& repeated_before(int i) const {
    return repeated_[static_cast<std::size_t>(i)];
  }

  /// Whether a value is on the device at place i without being computed again there.
  bool is_there(int v, int i) const;
  /// Whether one of the next two can be true for a value.
  bool can_end_early(int v) const { return can_end_early_[static_cast<std::size_t>(v)]; }
  /// Whether a value that is used at place i is freed there, although the same pass reads it again later.
  bool rests_after(int v, int i) const;
  /// Whether a value that rests after the node `within` of those repeated before a place (the last one is the
  /// place's own) is made again before anything reads it.
  bool is_made_next(int v, int place, std::size_t within) const;
  /// Whether the period makes a value again before anything reads it.
  bool is_made_first(int v) const;
  /// The last place that reads an input, or repeats a node with it.
  int last_read(int v) const { return last_reads_[static_cast<std::size_t>(v)]; }
  /// Where a swapped value must be back: before its first reader of backward, and before repeated nodes.
  int deadline(int v) const { return deadlines_[static_cast<std::size_t>(v)]; }

 private:
  // A place at which a value is used, in the order of what runs.
  struct Event {
    int place;
    std::size_t within;
    bool makes;
    auto when() const { return std::pair(place, within); }
  };

  void merge(const std::vector<std::vector<int>>& forward_before);
  void find_operands();
  void treat();
  bool can_rest(int v) const;
  bool rests_between(int v, int use, int next) const;
  bool rests_in(int v, const std::vector<int>& places, int i) const;
  bool is_made_again_at(int v, int i) const;
  bool is_repeatable(const MemoryNode& n, int i) const;
  bool add_closure(int v, int i, std::vector<NodePlace>& nodes);
  void find_places_of_repeats();
  bool find_repeated();
  bool take_from_repeated();
  void find_last_reads();
  void find_events();
  void find_deadlines();

  const MemoryProblem& p_;
  MergedList list_;
  std::vector<std::vector<int>> forward_before_;  // of which it is the list
  std::vector<bool> is_forward_;                  // per place
  std::vector<std::vector<Operand>> operands_;    // per place
  std::vector<int> wrapping_;
  std::vector<int> last_reads_of_list_;  // per value: the place, if nothing is repeated

  std::vector<Treatment> decided_, treated_;  // per value
  std::vector<int> swapped_, computed_again_;
  std::vector<int> repeating_;                    // places, ascending, at which nodes may be repeated
  std::vector<std::vector<NodePlace>> repeated_;  // per place
  std::vector<bool> is_kept_;                     // per value: computed again at an earlier place, and kept
  std::vector<int> made_again_at_;                // per value: the last place so far
  std::vector<int> last_reads_, deadlines_;       // per value: places
  std::vector<bool> can_end_early_;               // per value
  std::vector<int> made_beside_;                  // values that are made again with others
  std::vector<std::vector<Event>> events_;        // per value: of these
};

}  // namespace tandem::engine
