#include <tandem/memory/optimal_plan.h>

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <queue>
#include <unordered_map>

#include <fmt/format.h>

#include <tandem/core/base/contains.h>
#include <tandem/core/base/error.h>
#include <tandem/memory/optimal_bound.h>
#include <tandem/memory/optimal_problem.h>

namespace tandem::engine {
namespace {

using namespace optimal;
using Kind = MemoryValue::Kind;
constexpr std::size_t kMostLabels = 3'000'000;  // about a gigabyte
constexpr double kNever = std::numeric_limits<double>::infinity();

class Search {
 public:
  /// Looks for plans that take less than `below` ms.
  Search(const MemoryProblem& p, std::int64_t limit, bool copies, double below)
      : p_(p),
        limit_(limit),
        copies_(copies),
        below_(below),
        numbered_(p),
        bound_(numbered_, limit, copies) {}

  std::optional<CostedPlan> run() {
    make_starts();
    while (!queue_.empty()) {
      const auto [estimate, id] = queue_.top();
      queue_.pop();
      const Label label = labels_[static_cast<std::size_t>(id)];
      if (is_done(label) && label.copies.empty()) return plan_of(id);
      if (beaten(label, id)) continue;
      expand(label, id);
    }
    return std::nullopt;
  }

 private:
  Kind kind(int v) const { return numbered_.kind(v); }
  Set set_of(int v) const { return numbered_.set_of(v); }
  std::int64_t bytes_of(Set s) const { return numbered_.bytes_of(s); }

  // A pair's period may begin with any of graph 0's activations on the device, on the host, on both or none.
  void make_starts() {
    const Set choices = numbered_.crossing, may_be_on_host = copies_ ? choices & numbered_.intermediate : 0;
    for (Set device = choices;; device = (device - 1) & choices) {
      for (Set host = may_be_on_host;; host = (host - 1) & may_be_on_host) {
        Label label{};
        label.resident = numbered_.inputs | device;
        label.host = host;
        label.live = p_.static_bytes + bytes_of(label.resident);
        label.start = static_cast<int>(starts_.size());
        label.may_leave = ~Set{0};
        label.may_return = true;
        if (label.live <= limit_) {
          starts_.push_back({device, host});
          add(std::move(label));
        }
        if (host == 0) break;
      }
      if (device == 0) break;
    }
  }
  struct Start {
    Set resident, host;
  };

  bool is_done(const Label& l) const {
    if (!is_end(l)) return false;
    if (!p_.is_ring()) return true;
    const Start& start = starts_[static_cast<std::size_t>(l.start)];
    return (l.resident & start.resident) == start.resident && (l.host & start.host) == start.host;
  }

  bool beaten(const Label& l, int id) const {
    const auto found = best_.find(state_of(l));
    return found == best_.end() || !contains(found->second, id);
  }

  void add(Label label) {
    if (label.live > limit_) return;
    const double estimate = bound_.end_ms(label, below_ - kTolerance);
    if (estimate >= below_ - kTolerance) return;
    std::vector<int>& others = best_[state_of(label)];
    for (const int other : others)
      if (no_worse(labels_[static_cast<std::size_t>(other)], label)) return;
    std::erase_if(others,
                  [&](int other) { return no_worse(label, labels_[static_cast<std::size_t>(other)]); });
    const int id = static_cast<int>(labels_.size());
    if (labels_.size() == kMostLabels)
      throw Error(fmt::format("the search for the optimal plan gives up after {} states", kMostLabels));
    others.push_back(id);
    queue_.emplace(estimate, id);
    labels_.push_back(std::move(label));
  }

  static void step(Label& l, MemoryStep::Kind kind, int v) { l.steps.push_back({kind, v, -1, -1}); }

  // Waits for the copies of these values.
  void wait_for(Label& l, Set waited) const {
    for (std::size_t i = 0; i < l.copies.size();) {
      const Copy copy = l.copies[i];
      const Set s = set_of(copy.value);
      if ((s & waited) == 0) {
        ++i;
        continue;
      }
      l.clock = std::max(l.clock, copy.end);
      if (l.to_host & s) l.host |= s;
      l.to_host &= ~s, l.to_device &= ~s;
      step(l, MemoryStep::Kind::wait, copy.value);
      l.copies.erase(l.copies.begin() + static_cast<std::ptrdiff_t>(i));
      l.may_return = true;
    }
  }

  // Runs a node, or repeats it; there is room for it.
  void compute(Label& l, int g, int n, bool again) const {
    const MemoryNode& node = numbered_.node(g, n);
    const Set in = numbered_.read_by(g, n), out = numbered_.made_by(g, n), made = out & ~l.resident;
    wait_for(l, in | (out & l.resident));
    for (const int v : node.outputs)
      if (made & set_of(v)) step(l, MemoryStep::Kind::alloc, v);
    l.resident |= made;
    l.live += bytes_of(made);
    l.clock += node.run_ms;
    if (!again) l.host &= ~out;
    l.steps.push_back({again ? MemoryStep::Kind::recompute : MemoryStep::Kind::run, -1, g, n});
    l.may_leave = in | out;
    l.may_return = node.workspace_bytes > 0;
    l.unread &= ~in;
    if (again && node.outputs.size() == 1) l.unread |= out;
  }
  // Whether one of these values, which were recomputed and not read, could as well be recomputed now.
  bool could_have_waited(const Label& l, Set unread) const {
    for (; unread != 0; unread &= unread - 1) {
      const auto [g, n] = numbered_.maker[static_cast<std::size_t>(std::countr_zero(unread))];
      if (numbered_.may_repeat(l, g, n) && l.live + numbered_.node(g, n).workspace_bytes <= limit_)
        return true;
    }
    return false;
  }

  // Of a pair: what graph 0's forward made in the period before, and not yet in this one.
  Set of_period_before(const Label& l) const {
    Set s = 0;
    for (int place = l.ran[0]; p_.is_ring() && place < numbered_.places(0); ++place)
      if (numbered_.at(0, place).phase == Phase::forward) s |= numbered_.made_at(0, place);
    return s;
  }

  // Calls act(label) for each smallest set of values that leave room for so many bytes; they are freed.
  // Leaves out sets without which too much would be computed: `work` is what is computed in any case.
  template <class F>
  void with_room(const Label& from, std::int64_t need, Set needed, const LowerBound::Work& work,
                 const F& act) const {
    const std::int64_t missing = from.live + need - limit_;
    Set stay = needed | from.to_device | (numbered_.outputs & ~of_period_before(from));
    if (p_.is_ring()) stay |= numbered_.inputs;
    std::vector<int> choices;
    for (const int v : numbered_.values)
      if (set_of(v) & from.resident & ~stay) choices.push_back(v);
    std::vector<int> chosen;
    const auto choose = [&](const auto& self, std::size_t next, std::int64_t left,
                            const LowerBound::Work& work) -> void {
      if (work.end_ms >= below_ - kTolerance) return;
      if (left <= 0) {
        // Smallest: without any one of them there is no room.
        for (const int v : chosen)
          if (left + p_.values[static_cast<std::size_t>(v)].bytes <= 0) return;
        Label l = from;
        if (!chosen.empty()) l.may_leave = 0;
        for (const int v : chosen) free(l, v);
        act(std::move(l));
        return;
      }
      for (std::size_t i = next; i < choices.size(); ++i) {
        const int v = choices[i];
        chosen.push_back(v);
        self(self, i + 1, left - p_.values[static_cast<std::size_t>(v)].bytes, bound_.without(from, work, v));
        chosen.pop_back();
      }
    };
    choose(choose, 0, missing, work);
  }

  void free(Label& l, int v) const {
    wait_for(l, set_of(v));
    step(l, MemoryStep::Kind::free, v);
    l.resident &= ~set_of(v);
    l.live -= p_.values[static_cast<std::size_t>(v)].bytes;
    l.may_return = true;
    source_goes(l, v);
  }
  // What was computed again from v could not be so as well later: v is freed, or moves to the host.
  void source_goes(Label& l, int v) const {
    for (Set made = l.unread; made != 0; made &= made - 1) {
      const auto [g, n] = numbered_.maker[static_cast<std::size_t>(std::countr_zero(made))];
      if (numbered_.read_by(g, n) & set_of(v)) l.unread &= ~(made & -made);
    }
  }

  // Whether a node that has not run reads the value, in this period and before another takes its place.
  bool is_read_later(const Label& l, int v) const { return (numbered_.read_later(l) & set_of(v)) != 0; }

  // Frees what nothing needs any more: values of backward after their last reader, and those that none reads.
  void free_dead(Label& l, const MemoryNode& n) const {
    for (const auto* values : {&n.inputs, &n.outputs})
      for (const int v : *values) {
        if (kind(v) == Kind::parameter || !(l.resident & set_of(v)) || is_read_later(l, v)) continue;
        if (!(set_of(v) & (numbered_.inputs | numbered_.outputs | numbered_.of_forward))) free(l, v);
      }
  }

  void expand(const Label& from, int id) {
    const LowerBound::Work work = bound_.work(from);
    Label child = from;  // which nothing has changed yet
    child.parent = id;
    child.steps = {};
    for (int g = 0; g < numbered_.graphs(); ++g) {
      const int ran = from.ran[static_cast<std::size_t>(g)];
      if (ran == numbered_.places(g)) continue;
      const int n = numbered_.order[static_cast<std::size_t>(g)][static_cast<std::size_t>(ran)];
      const MemoryNode& next = numbered_.node(g, n);
      const Set in = numbered_.read_by(g, n), out = numbered_.made_by(g, n);
      if ((in & ~from.resident) != 0) continue;
      Label l = child;
      // What remains of the value's earlier life, as of a pair's period before, goes first.
      for (const int v : next.outputs)
        if (l.resident & set_of(v)) free(l, v);
      with_room(l, bytes_of(out) + next.workspace_bytes, in, work, [&](Label&& roomy) {
        const bool waits =
            ((roomy.to_host | roomy.to_device) & (in | out)) != 0 || roomy.clock > from.clock + kTolerance;
        const Set unread = roomy.unread & ~in;
        compute(roomy, g, n, false);
        ++roomy.ran[static_cast<std::size_t>(g)];
        free_dead(roomy, next);
        if (!waits && could_have_waited(roomy, unread)) return;
        roomy.unread = 0;
        add(std::move(roomy));
      });
    }
    for (int g = 0; g < numbered_.graphs(); ++g) {
      const bool wraps = p_.is_ring() && g == 0;
      for (int n = 0; n < numbered_.places(g); ++n) {
        const MemoryNode& again = numbered_.node(g, n);
        const Set in = numbered_.read_by(g, n), out = numbered_.made_by(g, n);
        if (again.phase != Phase::forward || (out & numbered_.intermediate) != out ||
            (out & ~from.resident) == 0)
          continue;
        if (!wraps && n >= from.ran[static_cast<std::size_t>(g)]) continue;
        if ((in & ~from.resident) != 0 || !numbered_.may_repeat(from, g, n)) continue;
        LowerBound::Work more = work;
        if (!(out & work.made_again)) more.end_ms += again.run_ms;
        with_room(child, bytes_of(out & ~from.resident) + again.workspace_bytes, in | out, more,
                  [&](Label&& roomy) {
                    compute(roomy, g, n, true);
                    add(std::move(roomy));
                  });
      }
    }
    if (copies_)
      for (const int v : numbered_.values) {
        const Set s = set_of(v);
        if (!(s & numbered_.intermediate) || ((from.to_host | from.to_device) & s)) continue;
        const bool there = (from.resident & s) != 0, on_host = (from.host & s) != 0;
        if (there == on_host || !is_useful(from, v)) continue;
        const auto begin = [&](Label&& l) {
          if (on_host) {
            l.live += p_.values[static_cast<std::size_t>(v)].bytes;
            l.resident |= s;
            step(l, MemoryStep::Kind::alloc, v);
          }
          double& channel = l.channels[on_host && p_.link.duplex ? 1 : 0];
          channel = std::max(channel, l.clock) + p_.copy_ms(v);
          (on_host ? l.to_device : l.to_host) |= s;
          step(l, on_host ? MemoryStep::Kind::h2d : MemoryStep::Kind::d2h, v);
          const auto at = std::ranges::lower_bound(l.copies, v, {}, &Copy::value);
          l.copies.insert(at, {v, channel});
          l.unread &= ~s;
          source_goes(l, v);
          l.may_leave = !on_host || !p_.link.duplex ? ~Set{0} : 0;
          l.may_return = on_host || !p_.link.duplex;
          add(std::move(l));
        };
        if (there) {
          if (from.may_leave & s) begin(Label(child));
        } else if (from.may_return || from.live + p_.values[static_cast<std::size_t>(v)].bytes > limit_) {
          with_room(child, p_.values[static_cast<std::size_t>(v)].bytes, s, work, begin);
        }
      }
    if (is_end(from) && !from.copies.empty()) {
      Label l = child;
      wait_for(l, ~Set{0});
      add(std::move(l));
    }
  }
  // All nodes have run; a pair may have to move values to where they were at the start.
  bool is_end(const Label& l) const {
    for (int g = 0; g < numbered_.graphs(); ++g)
      if (l.ran[static_cast<std::size_t>(g)] < numbered_.places(g)) return false;
    return true;
  }
  // Whether the value serves something from here on: a reader, or to make another value again, or a start.
  bool is_useful(const Label& l, int v) const {
    const Set s = set_of(v);
    return is_read_later(l, v) || (s & numbered_.of_forward) != 0;
  }

  std::optional<CostedPlan> plan_of(int id) const {
    std::vector<int> path;
    for (int at = id; at >= 0; at = labels_[static_cast<std::size_t>(at)].parent) path.push_back(at);
    MemoryPlan plan;
    const Label& last = labels_[static_cast<std::size_t>(id)];
    const Start& start = starts_[static_cast<std::size_t>(last.start)];
    for (std::size_t i = 0; i < numbered_.values.size() && p_.is_ring(); ++i) {
      const int v = numbered_.values[i];
      if (start.resident & set_of(v)) plan.resident_at_start.push_back(v);
      // A copy that is on the host at the end may as well be there at the start.
      if (numbered_.maker[i].graph == 0 && (last.host & set_of(v))) plan.host_at_start.push_back(v);
    }
    for (auto at = path.rbegin(); at != path.rend(); ++at) {
      const auto& steps = labels_[static_cast<std::size_t>(*at)].steps;
      plan.steps.insert(plan.steps.end(), steps.begin(), steps.end());
    }
    // What the step leaves behind: nothing but outputs, and a pair's inputs and next start.
    for (const int v : numbered_.values) {
      const Set s = set_of(v);
      const bool stays =
          (s & numbered_.outputs) || (p_.is_ring() && ((s & numbered_.inputs) || (s & start.resident)));
      if ((last.resident & s) && !stays) plan.steps.push_back({MemoryStep::Kind::free, v, -1, -1});
    }
    const MemoryCost cost = replay(p_, plan);
    return CostedPlan{std::move(plan), cost};
  }

  const MemoryProblem& p_;
  std::int64_t limit_;
  bool copies_;
  double below_;
  const NumberedProblem numbered_;
  const LowerBound bound_;
  std::vector<Start> starts_;
  std::vector<Label> labels_;
  std::unordered_map<State, std::vector<int>, StateHash>
      best_;  // labels of a state of which none beats another
  using Entry = std::pair<double, int>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue_;
};

}  // namespace

std::optional<CostedPlan> optimal_plan(const MemoryProblem& problem, std::int64_t limit, bool copies,
                                       const std::optional<CostedPlan>& known) {
  std::optional<CostedPlan> best = known;
  if (!best) {
    // If copies took no time, states would not differ in times, and the search sees soon whether there is a
    // plan.
    MemoryProblem fast = problem;
    fast.link.bytes_per_ms = 1e300;
    best = Search(fast, limit, copies, kNever).run();
    if (!best) return std::nullopt;
    best->cost = replay(problem, best->plan);
  }
  const auto found = Search(problem, limit, copies, best->cost.time_ms).run();
  return found ? found : best;
}

}  // namespace tandem::engine
