#include <tandem/memory/treated_values.h>

#include <algorithm>
#include <limits>

namespace tandem::engine {

using Kind = MemoryValue::Kind;

void TreatedValues::merge(const std::vector<std::vector<int>>& forward_before) {
  forward_before_ = forward_before;
  list_ = merged_list(p_, forward_before);
  repeated_.assign(list_.nodes.size(), {});
  repeating_.clear();
  events_.assign(list_.uses.size(), {});
  made_beside_.clear();
  is_forward_.clear();
  for (const NodePlace place : list_.nodes) is_forward_.push_back(node(place).phase == Phase::forward);
  wrapping_.clear();
  for (int v = 0; v < std::ssize(list_.uses); ++v)
    if (uses(v).wraps) wrapping_.push_back(v);
  last_reads_of_list_.assign(list_.uses.size(), p_.is_ring() ? std::numeric_limits<int>::max() : kNoPlace);
  for (int i = 0; i < places() && !p_.is_ring(); ++i)
    for (const int v : node(i).inputs) last_reads_of_list_[static_cast<std::size_t>(v)] = i;
  find_operands();
}

void TreatedValues::find_operands() {
  operands_.assign(list_.nodes.size(), {});
  const auto ends = [&](int v, int i) {
    if (kind(v) == Kind::input) return i == last_reads_of_list_[static_cast<std::size_t>(v)];
    if (is_forward(i) && uses(v).in_forward) return i == uses(v).last_forward;
    return i == uses(v).last_backward || uses(v).last_backward == kNoPlace;
  };
  for (int i = 0; i < places(); ++i)
    for (const auto* values : {&node(i).outputs, &node(i).inputs})
      for (const int v : *values)
        if (kind(v) != Kind::parameter) operands_[static_cast<std::size_t>(i)].push_back({v, ends(v, i)});
}

bool TreatedValues::decide(const MemoryDecisions& decisions) {
  if (list_.nodes.empty() || decisions.forward_before != forward_before_) merge(decisions.forward_before);
  decided_ = decisions.values;
  do {
    treat();
    if (!find_repeated()) return false;
  } while (take_from_repeated());
  return true;
}

void TreatedValues::treat() {
  treated_.assign(decided_.size(), Treatment::retain);
  swapped_.clear();
  computed_again_.clear();
  for (int v = 0; v < std::ssize(decided_); ++v) {
    const Treatment t = decided_[static_cast<std::size_t>(v)];
    if (t == Treatment::retain || kind(v) != Kind::intermediate || !uses(v).in_forward) continue;
    if (uses(v).first_backward == kNoPlace && t != Treatment::recompute_each) continue;
    treated_[static_cast<std::size_t>(v)] = t;
    (t == Treatment::swap ? swapped_ : computed_again_).push_back(v);
  }
}

bool TreatedValues::can_rest(int v) const {
  return treated(v) == Treatment::recompute_each || treated(v) == Treatment::recompute_in_backward;
}
// A ring's first graph cannot let a value of forward rest: its forward comes after the update of the weights.
bool TreatedValues::rests_between(int v, int use, int next) const {
  if (is_forward(use) && (treated(v) == Treatment::recompute_in_backward || uses(v).wraps)) return false;
  return next > use + 1;
}
// Whether it has been freed so between two of these places, the latter of which is at place i or behind.
bool TreatedValues::rests_in(int v, const std::vector<int>& places, int i) const {
  const auto next = std::ranges::lower_bound(places, i);
  return next != places.begin() && next != places.end() && rests_between(v, *std::prev(next), *next);
}
bool TreatedValues::rests_after(int v, int i) const {
  if (!can_rest(v)) return false;
  const std::vector<int>& places = is_forward(i) ? uses(v).forward : uses(v).backward;
  const auto next = std::ranges::upper_bound(places, i);
  return next != places.end() && rests_between(v, i, *next);
}
// Whether a value is computed again at place i, which reads it.
bool TreatedValues::is_made_again_at(int v, int i) const {
  if (!is_forward(i) && i == uses(v).first_backward) return is_recomputed_for_backward(treated(v));
  if (!can_rest(v)) return false;
  const std::vector<int>& places = is_forward(i) ? uses(v).forward : uses(v).backward;
  return std::ranges::binary_search(places, i) && rests_in(v, places, i);
}

bool TreatedValues::is_there(int v, int i) const {
  if (kind(v) == Kind::parameter || kind(v) == Kind::input) return true;
  const Uses& u = uses(v);
  const Treatment t = treated(v);
  if (can_rest(v) && (rests_in(v, u.forward, i) || rests_in(v, u.backward, i))) return false;
  if (is_forward(i)) {  // perhaps of a micro-batch behind v's backward
    if (i <= u.last_forward || kind(v) == Kind::output) return true;
    const bool is_read_later = u.first_backward != kNoPlace && (u.wraps || i <= u.last_backward);
    return is_read_later && t != Treatment::swap && !is_recomputed_for_backward(t);
  }
  if (u.first_backward == kNoPlace || i > u.last_backward) return false;
  if (t == Treatment::retain) return u.in_forward || u.made <= i;
  if (t == Treatment::recompute_and_keep)
    return i > u.first_backward || is_kept_[static_cast<std::size_t>(v)];
  return !is_recomputed_for_backward(t) || i > u.first_backward;
}

// Whether a node can be repeated at place i.
bool TreatedValues::is_repeatable(const MemoryNode& n, int i) const {
  return n.phase == Phase::forward &&
         std::ranges::all_of(n.outputs, [&](int v) { return kind(v) == Kind::intermediate; }) &&
         std::ranges::all_of(n.inputs, [&](int v) { return uses(v).updated >= i; });
}

// Adds the nodes that make v again at place i, sources first. Returns false if one cannot be repeated.
// Chains can be too long for recursion.
bool TreatedValues::add_closure(int v, int i, std::vector<NodePlace>& nodes) {
  const auto is_missing = [&](int x) {
    return !is_there(x, i) && made_again_at_[static_cast<std::size_t>(x)] != i;
  };
  if (!is_missing(v)) return true;
  struct Visit {
    NodePlace place;
    std::size_t next_input = 0;
  };
  std::vector<Visit> path{{uses(v).producer}};
  while (!path.empty()) {
    Visit& visit = path.back();
    const MemoryNode& n = node(visit.place);
    if (visit.next_input == 0 && !is_repeatable(n, i)) return false;
    if (visit.next_input < n.inputs.size()) {
      const int in = n.inputs[visit.next_input++];
      if (is_missing(in)) path.push_back({uses(in).producer});
      continue;
    }
    nodes.push_back(visit.place);
    for (const int out : n.outputs) made_again_at_[static_cast<std::size_t>(out)] = i;
    path.pop_back();
  }
  return true;
}

void TreatedValues::find_places_of_repeats() {
  for (const int i : repeating_) repeated_[static_cast<std::size_t>(i)].clear();
  repeating_.clear();
  for (const int v : computed_again_) {
    if (uses(v).first_backward != kNoPlace) repeating_.push_back(uses(v).first_backward);
    if (!can_rest(v)) continue;
    for (const auto* places : {&uses(v).forward, &uses(v).backward})
      repeating_.insert(repeating_.end(), places->begin(), places->end());
  }
  std::ranges::sort(repeating_);
  repeating_.erase(std::unique(repeating_.begin(), repeating_.end()), repeating_.end());
}

bool TreatedValues::find_repeated() {
  find_places_of_repeats();
  made_again_at_.assign(list_.uses.size(), kNoPlace);
  is_kept_.assign(list_.uses.size(), false);
  for (const int i : repeating_) {
    std::vector<NodePlace>& nodes = repeated_[static_cast<std::size_t>(i)];
    for (const int v : node(i).inputs)
      if (is_made_again_at(v, i) && !add_closure(v, i, nodes)) return false;
    if (is_forward(i)) continue;
    for (const NodePlace place : nodes)
      for (const int v : node(place).outputs)
        if (treated(v) == Treatment::recompute_and_keep && i <= uses(v).last_backward)
          is_kept_[static_cast<std::size_t>(v)] = true;
  }
  return true;
}

// A value that a repeated node makes again need not be swapped. Returns whether there was one.
bool TreatedValues::take_from_repeated() {
  bool any = false;
  for (const int i : repeating_)
    for (const NodePlace place : repeated_before(i))
      for (const int v : node(place).outputs)
        if (treated(v) == Treatment::swap) {
          decided_[static_cast<std::size_t>(v)] = Treatment::recompute_and_keep;
          any = true;
        }
  return any;
}

// Added up in the order of the list, so that no rounding makes it longer than the plan's time.
double TreatedValues::time_without_stalls() const {
  double ms = 0;
  auto next = repeating_.begin();
  for (int i = 0; i < places(); ++i) {
    if (next != repeating_.end() && *next == i)
      for (const NodePlace place : repeated_before(*next++)) ms += node(place).run_ms;
    ms += node(i).run_ms;
  }
  return ms;
}

void TreatedValues::find_places() {
  find_last_reads();
  find_events();
  find_deadlines();
  can_end_early_.assign(list_.uses.size(), false);
  for (const int v : made_beside_) can_end_early_[static_cast<std::size_t>(v)] = true;
  for (const int v : computed_again_)
    if (can_rest(v)) can_end_early_[static_cast<std::size_t>(v)] = true;
}

// Inputs stay until the last node that reads them, or repeats with them. A ring's are read in each period.
void TreatedValues::find_last_reads() {
  last_reads_ = last_reads_of_list_;
  for (const int i : repeating_)
    for (const NodePlace place : repeated_before(i))
      for (const int v : node(place).inputs) {
        int& last = last_reads_[static_cast<std::size_t>(v)];
        last = std::max(last, i);
      }
}

// A node that is repeated makes all of its outputs again, also those that are there: these are free from
// their last use before on.
void TreatedValues::find_events() {
  for (const int v : made_beside_) events_[static_cast<std::size_t>(v)].clear();
  made_beside_.clear();
  for (const int i : repeating_)
    for (const NodePlace place : repeated_before(i))
      if (const auto& outputs = node(place).outputs; outputs.size() > 1)
        made_beside_.insert(made_beside_.end(), outputs.begin(), outputs.end());
  std::ranges::sort(made_beside_);
  made_beside_.erase(std::unique(made_beside_.begin(), made_beside_.end()), made_beside_.end());
  if (made_beside_.empty()) return;
  for (const int v : made_beside_)
    for (const auto* places : {&uses(v).forward, &uses(v).backward})
      for (const int i : *places)
        events_[static_cast<std::size_t>(v)].push_back({i, repeated_before(i).size(), i == uses(v).made});
  const auto add = [&](int v, int i, std::size_t within, bool makes) {
    if (std::ranges::binary_search(made_beside_, v))
      events_[static_cast<std::size_t>(v)].push_back({i, within, makes});
  };
  for (const int i : repeating_)
    for (std::size_t k = 0; k < repeated_before(i).size(); ++k) {
      const MemoryNode& n = node(repeated_before(i)[k]);
      for (const int v : n.inputs) add(v, i, k, false);
      for (const int v : n.outputs) add(v, i, k, true);
    }
  for (const int v : made_beside_)
    std::ranges::stable_sort(events_[static_cast<std::size_t>(v)], {}, &Event::when);
}
bool TreatedValues::is_made_next(int v, int place, std::size_t within) const {
  const auto& events = events_[static_cast<std::size_t>(v)];
  if (events.empty()) return false;
  const auto next = std::ranges::upper_bound(events, std::pair(place, within), {}, &Event::when);
  return next != events.end() ? next->makes : uses(v).wraps && events.front().makes;
}
bool TreatedValues::is_made_first(int v) const {
  const auto& events = events_[static_cast<std::size_t>(v)];
  return !events.empty() && events.front().makes;
}

void TreatedValues::find_deadlines() {
  deadlines_.assign(list_.uses.size(), std::numeric_limits<int>::max());
  for (const int v : swapped_) deadlines_[static_cast<std::size_t>(v)] = uses(v).first_backward;
  for (const int i : repeating_) {
    if (is_forward(i)) continue;
    for (const NodePlace place : repeated_before(i))
      for (const int v : node(place).inputs)
        if (treated(v) == Treatment::swap && i <= uses(v).last_backward) {
          int& deadline = deadlines_[static_cast<std::size_t>(v)];
          deadline = std::min(deadline, i);
        }
  }
}

}  // namespace tandem::engine
