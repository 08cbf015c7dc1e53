// How decisions become a list of instructions.
#include <tandem/memory/memory_decisions.h>

#include <algorithm>
#include <deque>
#include <limits>

#include <tandem/core/base/contains.h>
#include <tandem/memory/fetch_places.h>
#include <tandem/memory/memory_machine.h>
#include <tandem/memory/merged_list.h>

namespace tandem::engine {
namespace {

using Kind = MemoryValue::Kind;

class Planner {
 public:
  Planner(const MemoryProblem& p, const MemoryDecisions& d, std::int64_t limit, const PlanRank& bound)
      : p_(p), d_(d), limit_(limit), bound_(bound), list_(merged_list(p, d)), uses_(uses_of(p, d, list_)) {}

  std::optional<CostedPlan> plan() {
    do {
      if (!find_closures()) return std::nullopt;
    } while (take_from_repeats());
    if (PlanRank{0, time_without_stalls()} >= bound_) return std::nullopt;
    find_last_reads();
    find_repeats();
    find_deadlines();
    prompts_.assign(uses_.size(), kNoPlace);
    if (!emit()) return std::nullopt;  // without copies ahead of their reader
    CostedPlan best{std::move(plan_), cost_};
    // Copies that begin earlier change when nodes begin, and so when copies have to.
    for (int round = 0; round < kRounds && place_prompts(); ++round) {
      emit();
      if (rank_of(cost_, limit_) >= rank_of(best.cost, limit_)) break;
      best = {std::move(plan_), cost_};
    }
    if (rank_of(best.cost, limit_) >= bound_) return std::nullopt;
    return best;
  }

 private:
  static constexpr int kRounds = 2;  // a third gains nothing

  const MemoryNode& node(NodePlace place) const {
    return p_.graphs[static_cast<std::size_t>(place.graph)].nodes[static_cast<std::size_t>(place.node)];
  }
  const Uses& uses(int v) const { return uses_[static_cast<std::size_t>(v)]; }
  Kind kind(int v) const { return p_.values[static_cast<std::size_t>(v)].kind; }
  std::int64_t bytes(int v) const { return p_.values[static_cast<std::size_t>(v)].bytes; }
  bool is_given(int v) const { return kind(v) == Kind::parameter || kind(v) == Kind::input; }
  Treatment treated(int v) const {
    const Uses& u = uses(v);
    const Treatment t = d_.values[static_cast<std::size_t>(v)];
    const bool may = kind(v) == Kind::intermediate && u.in_forward &&
                     (u.first_backward != kNoPlace || t == Treatment::recompute_each);
    return may ? t : Treatment::retain;
  }

  bool is_forward(int i) const { return node(list_[static_cast<std::size_t>(i)]).phase == Phase::forward; }
  // Whether a value that is used at some place is freed there, although the same pass reads it again later. A
  // ring's first graph cannot: its forward comes after the update of the weights.
  bool rests_between(int v, int use, int next) const {
    const bool in_forward = is_forward(use);
    if (in_forward && (treated(v) == Treatment::recompute_in_backward || uses(v).wraps)) return false;
    return treated(v) != Treatment::retain && next > use + 1;
  }
  // Whether it has been freed so between two of these places, the latter of which is at place i or behind.
  bool rests_in(int v, const std::vector<int>& places, int i) const {
    const auto next = std::ranges::lower_bound(places, i);
    return next != places.begin() && next != places.end() && rests_between(v, *std::prev(next), *next);
  }
  bool rests_after(int v, int use) const {
    const std::vector<int>& places = is_forward(use) ? uses(v).forward : uses(v).backward;
    const auto next = std::ranges::upper_bound(places, use);
    return next != places.end() && rests_between(v, use, *next);
  }
  // Whether a value is computed again at place i, which reads it.
  bool is_made_again_at(int v, int i) const {
    if (!is_forward(i) && i == uses(v).first_backward) return is_recomputed_for_backward(treated(v));
    const std::vector<int>& places = is_forward(i) ? uses(v).forward : uses(v).backward;
    return std::ranges::binary_search(places, i) && rests_in(v, places, i);
  }

  // Whether a value is on the device at place i without being computed again there.
  bool is_there(int v, int i) const {
    if (is_given(v)) return true;
    const Uses& u = uses(v);
    const Treatment t = treated(v);
    if (rests_in(v, u.forward, i) || rests_in(v, u.backward, i)) return false;
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
  bool is_repeatable(const MemoryNode& n, int i) const {
    return n.phase == Phase::forward &&
           std::ranges::all_of(n.outputs, [&](int v) { return kind(v) == Kind::intermediate; }) &&
           std::ranges::all_of(n.inputs, [&](int v) { return uses(v).updated >= i; });
  }

  // Adds the nodes that make v again at place i, sources first. Returns false if one cannot be repeated.
  // Chains can be too long for recursion.
  bool add_closure(int v, int i, std::vector<NodePlace>& nodes) {
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

  bool find_closures() {
    closures_.assign(list_.size(), {});
    made_again_at_.assign(uses_.size(), kNoPlace);
    is_kept_.assign(uses_.size(), false);
    for (int i = 0; i < std::ssize(list_); ++i) {
      std::vector<NodePlace>& closure = closures_[static_cast<std::size_t>(i)];
      const MemoryNode& n = node(list_[static_cast<std::size_t>(i)]);
      for (const int v : n.inputs)
        if (is_made_again_at(v, i) && !add_closure(v, i, closure)) return false;
      if (n.phase == Phase::forward) continue;
      for (const NodePlace place : closure)
        for (const int v : node(place).outputs)
          if (treated(v) == Treatment::recompute_and_keep && i <= uses(v).last_backward)
            is_kept_[static_cast<std::size_t>(v)] = true;
    }
    return true;
  }

  // A value that a repeated node makes again need not be swapped. Returns whether there was one.
  bool take_from_repeats() {
    bool any = false;
    for (const auto& closure : closures_)
      for (const NodePlace place : closure)
        for (const int v : node(place).outputs)
          if (treated(v) == Treatment::swap) {
            d_.values[static_cast<std::size_t>(v)] = Treatment::recompute_and_keep;
            any = true;
          }
    return any;
  }

  // Added up in the order of the list, so that no rounding makes it longer than the plan's time.
  double time_without_stalls() const {
    double ms = 0;
    for (std::size_t i = 0; i < list_.size(); ++i) {
      for (const NodePlace place : closures_[i]) ms += node(place).run_ms;
      ms += node(list_[i]).run_ms;
    }
    return ms;
  }

  // Inputs stay until the last node that reads them, or repeats with them. A ring's are read in each period.
  void find_last_reads() {
    last_reads_.assign(uses_.size(), p_.is_ring() ? std::numeric_limits<int>::max() : kNoPlace);
    for (int i = 0; i < std::ssize(list_) && !p_.is_ring(); ++i) {
      const auto reads = [&](const MemoryNode& n) {
        for (const int v : n.inputs) last_reads_[static_cast<std::size_t>(v)] = i;
      };
      reads(node(list_[static_cast<std::size_t>(i)]));
      for (const NodePlace place : closures_[static_cast<std::size_t>(i)]) reads(node(place));
    }
  }
  int last_read(int v) const { return last_reads_[static_cast<std::size_t>(v)]; }

  // A node that is repeated makes all of its outputs again, also those that are there: these are free from
  // their last use before on.
  struct Event {
    int place;
    std::size_t within;  // which of the repeated nodes there; last the place's own node
    bool makes;
    auto when() const { return std::pair(place, within); }
  };
  void find_repeats() {
    std::vector<bool> repeated(uses_.size());
    bool any = false;
    for (const auto& closure : closures_)
      for (const NodePlace place : closure)
        for (const int v : node(place).outputs)
          if (node(place).outputs.size() > 1) repeated[static_cast<std::size_t>(v)] = any = true;
    events_.clear();
    if (!any) return;
    events_.resize(uses_.size());
    for (int i = 0; i < std::ssize(list_); ++i) {
      const auto& closure = closures_[static_cast<std::size_t>(i)];
      for (std::size_t k = 0; k <= closure.size(); ++k) {
        const MemoryNode& n = node(k < closure.size() ? closure[k] : list_[static_cast<std::size_t>(i)]);
        const auto add = [&](const std::vector<int>& values, bool makes) {
          for (const int v : values)
            if (repeated[static_cast<std::size_t>(v)])
              events_[static_cast<std::size_t>(v)].push_back({i, k, makes});
        };
        add(n.inputs, false);
        add(n.outputs, true);
      }
    }
  }
  // Whether a value that rests after these nodes is made again before anything reads it.
  bool is_made_next(int v, int place, std::size_t within) const {
    if (events_.empty()) return false;
    const auto& events = events_[static_cast<std::size_t>(v)];
    const auto next = std::ranges::upper_bound(events, std::pair(place, within), {}, &Event::when);
    if (next != events.end()) return next->makes;
    return uses(v).wraps && !events.empty() && events.front().makes;
  }

  // A swapped value must be back before its first reader of backward, and before nodes that are repeated.
  void find_deadlines() {
    deadlines_.assign(uses_.size(), std::numeric_limits<int>::max());
    for (int i = 0; i < std::ssize(list_); ++i) {
      const auto reads = [&](const MemoryNode& n) {
        for (const int v : n.inputs)
          if (treated(v) == Treatment::swap && i <= uses(v).last_backward)
            deadlines_[static_cast<std::size_t>(v)] = std::min(deadlines_[static_cast<std::size_t>(v)], i);
      };
      if (is_forward(i)) continue;
      for (const NodePlace place : closures_[static_cast<std::size_t>(i)]) reads(node(place));
      reads(node(list_[static_cast<std::size_t>(i)]));
    }
  }
  int deadline(int v) const { return deadlines_[static_cast<std::size_t>(v)]; }

  // Chooses where copies from the host begin, by the times of the last list. Returns whether there are any.
  bool place_prompts() {
    std::vector<int> swapped;
    std::vector<Fetch> fetches;
    for (int v = 0; v < std::ssize(uses_); ++v) {
      if (treated(v) != Treatment::swap) continue;
      const int earliest = uses(v).wraps ? 0 : uses(v).last_forward + 1;  // it has begun to leave
      swapped.push_back(v);
      fetches.push_back({earliest, deadline(v), bytes(v), p_.copy_ms(v)});
      if (prompts_[static_cast<std::size_t>(v)] == kNoPlace) continue;
      for (int i = prompts_[static_cast<std::size_t>(v)]; i < deadline(v); ++i)
        full_[static_cast<std::size_t>(i)] -= bytes(v);
    }
    const std::vector<int> places = fetch_places(fetches, begins_, full_, limit_);
    for (std::size_t i = 0; i < places.size(); ++i)
      prompts_[static_cast<std::size_t>(swapped[i])] = places[i];
    return !swapped.empty();
  }

  void step(MemoryStep::Kind kind, int v) { execute({kind, v, kNoPlace, kNoPlace}); }
  void compute(MemoryStep::Kind kind, NodePlace place) { execute({kind, kNoPlace, place.graph, place.node}); }
  void execute(const MemoryStep& step) {
    const MemoryStep& s = plan_.steps.emplace_back(step);
    machine_->execute(s);
    highest_ = std::max(highest_,
                        machine_->live_bytes() + (s.node >= 0 ? node({s.graph, s.node}).workspace_bytes : 0));
  }
  void free(int v) { step(MemoryStep::Kind::free, v); }

  // Frees sources whose copies have ended, and as many others as `need` takes.
  void release_copied(std::int64_t need) {
    while (!leaving_.empty() && (machine_->copied_at(leaving_.front()) <= machine_->clock_ms() ||
                                 machine_->live_bytes() + need > limit_)) {
      const int v = leaving_.front();
      stays(v);
      step(MemoryStep::Kind::wait, v);
      free(v);
    }
  }
  void alloc(int v, std::int64_t more = 0) {
    release_copied(bytes(v) + more);
    if (leaves(v)) {  // it is needed again before its copy has ended
      stays(v);
      step(MemoryStep::Kind::wait, v);
      return;
    }
    if (!machine_->is_resident(v)) step(MemoryStep::Kind::alloc, v);
  }
  bool leaves(int v) const { return leaves_[static_cast<std::size_t>(v)]; }
  void leave(int v) {
    leaving_.push_back(v);
    leaves_[static_cast<std::size_t>(v)] = true;
  }
  void stays(int v) {
    if (!leaves(v)) return;
    if (leaving_.front() == v)
      leaving_.pop_front();
    else
      std::erase(leaving_, v);
    leaves_[static_cast<std::size_t>(v)] = false;
  }

  // A value that has not left yet stays, though nothing may read it before its copy has ended.
  void begin_fetch(int v) {
    if (leaves(v)) return stays(v);
    alloc(v);
    step(MemoryStep::Kind::h2d, v);
  }
  void release_source(int v) {
    stays(v);
    step(MemoryStep::Kind::wait, v);
    free(v);
  }

  void prepare(const MemoryNode& n, int i) {
    for (const int v : n.inputs) {
      if (treated(v) == Treatment::swap && deadline(v) == i && !machine_->is_resident(v)) begin_fetch(v);
      if (machine_->is_under_copy(v)) {
        step(MemoryStep::Kind::wait, v);
        stays(v);
      }
    }
    std::int64_t need = n.workspace_bytes;
    for (const int v : n.outputs)
      if (!machine_->is_resident(v)) need += bytes(v);
    release_copied(need);
    for (const int v : n.outputs) {
      if (machine_->is_under_copy(v) && !leaves(v)) step(MemoryStep::Kind::wait, v);  // it is on its way back
      alloc(v);
    }
  }

  void recompute_at(int i) {
    const auto& nodes = closures_[static_cast<std::size_t>(i)];
    for (std::size_t k = 0; k < nodes.size(); ++k)
      for (const int v : node(nodes[k]).inputs) last_repeats_[static_cast<std::size_t>(v)] = {i, k};
    for (std::size_t k = 0; k < nodes.size(); ++k) {
      const MemoryNode& n = node(nodes[k]);
      prepare(n, i);
      compute(MemoryStep::Kind::recompute, nodes[k]);
      // Free what no later node of the closure reads, and nothing else needs from here.
      const auto is_read = [&](int v) {
        const auto& [place, last] = last_repeats_[static_cast<std::size_t>(v)];
        return place == i && last > k;
      };
      const auto remains = [&](int v) {
        if (contains(node(list_[static_cast<std::size_t>(i)]).inputs, v)) return true;
        if (kind(v) == Kind::input) return i < last_read(v);
        return is_there(v, i) ||
               (treated(v) == Treatment::recompute_and_keep && !is_forward(i) && i <= uses(v).last_backward);
      };
      for (const auto* values : {&n.inputs, &n.outputs})
        for (const int v : *values)
          if (machine_->is_resident(v) && ((!remains(v) && !is_read(v)) || is_made_next(v, i, k))) free(v);
    }
  }

  void release_after(const MemoryNode& n, int i) {
    for (const auto* values : {&n.outputs, &n.inputs})
      for (const int v : *values) {
        if (kind(v) == Kind::parameter || !machine_->is_resident(v) || leaves(v)) continue;
        const Uses& u = uses(v);
        const bool forward = n.phase == Phase::forward;
        if (is_made_next(v, i, closures_[static_cast<std::size_t>(i)].size()) || rests_after(v, i)) {
          free(v);
          continue;
        }
        if (kind(v) == Kind::input) {
          if (i == last_read(v)) free(v);
        } else if (forward && u.in_forward) {
          if (i != u.last_forward) continue;
          if (u.first_backward == kNoPlace) {
            if (kind(v) != Kind::output) free(v);
          } else if (treated(v) == Treatment::swap) {
            step(MemoryStep::Kind::d2h, v);
            leave(v);
          } else if (is_recomputed_for_backward(treated(v))) {
            free(v);
          }
        } else if (i == u.last_backward || u.last_backward == kNoPlace) {
          if (kind(v) != Kind::output || u.wraps) free(v);
        }
      }
  }

  // Returns false, and leaves the plan unfinished, if it cannot rank below the bound. That is known before the
  // end only without copies, because copies that begin at other times can need less memory.
  bool emit() {
    plan_ = {};
    bool copies = false;
    for (int v = 0; v < std::ssize(uses_); ++v) {
      copies = copies || treated(v) == Treatment::swap;
      if (uses(v).wraps) {
        const bool is_made_first = !events_.empty() && !events_[static_cast<std::size_t>(v)].empty() &&
                                   events_[static_cast<std::size_t>(v)].front().makes;
        if (treated(v) != Treatment::swap && !is_recomputed_for_backward(treated(v)) && !is_made_first)
          plan_.resident_at_start.push_back(v);
        if (treated(v) == Treatment::swap) plan_.host_at_start.push_back(v);
      }
    }
    machine_.emplace(p_, plan_.resident_at_start, plan_.host_at_start);
    last_repeats_.assign(uses_.size(), {kNoPlace, 0});
    leaving_.clear();
    leaves_.assign(uses_.size(), false);
    begins_.assign(list_.size(), 0);
    full_.assign(list_.size(), 0);
    std::vector<std::vector<int>> fetched(list_.size());
    for (int v = 0; v < std::ssize(uses_); ++v)
      if (prompts_[static_cast<std::size_t>(v)] != kNoPlace)
        fetched[static_cast<std::size_t>(prompts_[static_cast<std::size_t>(v)])].push_back(v);
    for (int i = 0; i < std::ssize(list_); ++i) {
      const MemoryNode& n = node(list_[static_cast<std::size_t>(i)]);
      highest_ = 0;
      begins_[static_cast<std::size_t>(i)] = machine_->clock_ms();
      release_copied(0);
      std::ranges::stable_sort(fetched[static_cast<std::size_t>(i)], {}, [&](int v) { return deadline(v); });
      for (const int v : fetched[static_cast<std::size_t>(i)])
        if (!machine_->is_resident(v) || leaves(v)) begin_fetch(v);
      recompute_at(i);
      prepare(n, i);
      compute(MemoryStep::Kind::run, list_[static_cast<std::size_t>(i)]);
      release_after(n, i);
      full_[static_cast<std::size_t>(i)] = highest_;
      if (!copies && highest_ - limit_ > bound_.first) return false;
    }
    while (!leaving_.empty()) release_source(leaving_.front());
    cost_ = machine_->finish();
    return true;
  }

  const MemoryProblem& p_;
  MemoryDecisions d_;
  std::int64_t limit_;
  PlanRank bound_;
  std::vector<NodePlace> list_;
  std::vector<Uses> uses_;
  std::vector<int> last_reads_;                            // per value: the place
  std::vector<bool> is_kept_;                              // computed again at an earlier place, and kept
  std::vector<int> made_again_at_;                         // per value: the last place so far
  std::vector<std::vector<NodePlace>> closures_;           // per place: the nodes that are repeated before it
  std::vector<std::pair<int, std::size_t>> last_repeats_;  // per value: place and node that read it last
  std::vector<std::vector<Event>> events_;  // of values that are made again while they are there
  std::vector<int> deadlines_, prompts_;    // per value: places
  std::vector<double> begins_;              // per place: when it begins
  std::vector<std::int64_t> full_;          // per place: the most bytes there
  std::int64_t highest_ = 0;
  std::deque<int> leaving_;   // under copy to the host, to be freed then
  std::vector<bool> leaves_;  // per value: whether it is one of them
  std::optional<MemoryMachine> machine_;
  MemoryPlan plan_;
  MemoryCost cost_;
};

}  // namespace

std::optional<CostedPlan> plan_of(const MemoryProblem& problem, const MemoryDecisions& decisions,
                                  std::int64_t limit, const PlanRank& bound) {
  return Planner(problem, decisions, limit, bound).plan();
}

}  // namespace tandem::engine
