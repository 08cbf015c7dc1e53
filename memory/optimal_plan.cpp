#include <tandem/memory/optimal_plan.h>

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <map>
#include <queue>
#include <unordered_map>

#include <fmt/format.h>

#include <tandem/core/base/contains.h>
#include <tandem/core/base/error.h>
#include <tandem/memory/optimal_label.h>

namespace tandem::engine {
namespace {

using namespace optimal;
using Kind = MemoryValue::Kind;
constexpr int kMostValues = 64;
constexpr std::size_t kMostLabels = 3'000'000;  // about a gigabyte
constexpr double kNever = std::numeric_limits<double>::infinity();

Set only(int v) { return Set{1} << v; }

class Search {
 public:
  Search(const MemoryProblem& p, std::int64_t limit, bool copies, double bound)
      : p_(p), limit_(limit), copies_(copies), bound_(bound) {
    number_values();
    for (int g = 0; g < std::ssize(p.graphs); ++g) {
      const auto& nodes = p.graphs[static_cast<std::size_t>(g)].nodes;
      const int first = p.is_pair() && g == 0 ? p.graphs[0].forward_nodes() : 0;
      std::vector<int>& order = order_.emplace_back();
      for (int i = 0; i < std::ssize(nodes); ++i)
        order.push_back(static_cast<int>((first + i) % std::ssize(nodes)));
      std::vector<double> left(nodes.size() + 1, 0);
      std::vector<Set> read(nodes.size() + 1, 0);
      for (std::size_t i = nodes.size(); i-- > 0;) {
        const MemoryNode& n = nodes[static_cast<std::size_t>(order[i])];
        left[i] = left[i + 1] + n.run_ms;
        read[i] = (read[i + 1] & ~set_of(n.outputs)) | set_of(n.inputs);
      }
      left_ms_.push_back(std::move(left));
      read_later_.push_back(std::move(read));
      find_last_repeats(g);
    }
  }

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
  void number_values() {
    for (int v = 0; v < std::ssize(p_.values); ++v)
      if (kind(v) != Kind::parameter) {
        number_.emplace(v, static_cast<int>(values_.size()));
        values_.push_back(v);
      }
    if (values_.size() > kMostValues)
      throw Error(fmt::format(
          "the optimal plan is searched for at most {} values beside parameters; this problem has {}",
          kMostValues, values_.size()));
    for (std::size_t g = 0; g < p_.graphs.size(); ++g)
      for (const MemoryNode& n : p_.graphs[g].nodes)
        for (const int v : n.outputs) {
          if (n.phase == Phase::forward)
            maker_[static_cast<std::size_t>(number_.at(v))] = {
                static_cast<int>(g), static_cast<int>(&n - p_.graphs[g].nodes.data())};
          if (n.phase == Phase::forward) of_forward_ |= set_of(v);
          if (n.phase == Phase::forward && g == 0 && p_.is_pair()) of_first_forward_ |= set_of(v);
        }
    for (const int v : values_) {
      if (kind(v) == Kind::input) inputs_ |= set_of(v);
      if (kind(v) == Kind::output) outputs_ |= set_of(v);
      if (kind(v) == Kind::intermediate) intermediate_ |= set_of(v);
    }
    for (const MemoryGraph& graph : p_.graphs)
      for (const MemoryNode& n : graph.nodes)
        if (n.phase != Phase::forward)
          for (const int v : n.inputs)
            if (kind(v) != Kind::parameter) read_in_backward_ |= set_of(v);
  }

  // A node whose parameters an update has changed makes other values.
  void find_last_repeats(int g) {
    const auto& nodes = p_.graphs[static_cast<std::size_t>(g)].nodes;
    const std::vector<int>& order = order_.back();
    std::vector<int>& last = repeated_until_.emplace_back(nodes.size(), static_cast<int>(order.size()));
    for (std::size_t n = 0; n < nodes.size(); ++n)
      for (int i = static_cast<int>(order.size()) - 1; i >= 0; --i)
        if (const MemoryNode& update = node(g, order[static_cast<std::size_t>(i)]);
            update.phase == Phase::update && std::ranges::any_of(nodes[n].inputs, [&](int v) {
              return kind(v) == Kind::parameter && contains(update.inputs, v);
            }))
          last[n] = i;
  }
  bool may_repeat(const Label& l, int g, int n) const {
    return l.ran[static_cast<std::size_t>(g)] <=
           repeated_until_[static_cast<std::size_t>(g)][static_cast<std::size_t>(n)];
  }

  Kind kind(int v) const { return p_.values[static_cast<std::size_t>(v)].kind; }
  Set set_of(int v) const { return only(number_.at(v)); }
  std::int64_t bytes_of(Set s) const {
    std::int64_t sum = 0;
    for (; s != 0; s &= s - 1)
      sum +=
          p_.values[static_cast<std::size_t>(values_[static_cast<std::size_t>(std::countr_zero(s))])].bytes;
    return sum;
  }
  const MemoryNode& node(int g, int n) const {
    return p_.graphs[static_cast<std::size_t>(g)].nodes[static_cast<std::size_t>(n)];
  }
  Set set_of(const std::vector<int>& values) const {
    Set s = 0;
    for (const int v : values)
      if (kind(v) != Kind::parameter) s |= set_of(v);
    return s;
  }

  // A pair's period may begin with any of graph 0's activations on the device, on the host, on both or none.
  void make_starts() {
    const Set choices = of_first_forward_ & read_in_backward_, forced = choices & outputs_,
              free = choices & ~forced;
    for (Set device = free;; device = (device - 1) & free) {
      for (Set host = copies_ ? free & intermediate_ : 0;; host = (host - 1) & free & intermediate_) {
        Label label{};
        label.resident = inputs_ | device | forced;
        label.host = host;
        label.live = p_.static_bytes + bytes_of(label.resident);
        label.start = static_cast<int>(starts_.size());
        label.may_leave = ~Set{0};
        label.may_return = true;
        if (label.live <= limit_) {
          starts_.push_back({device | forced, host});
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

  // At least so long takes what is left: the nodes that have not run, and once more those that made what is
  // read later and is nowhere any more. Infinite if that cannot be.
  double left_ms(const Label& l) const {
    double ms = 0;
    Set lost = 0;
    for (std::size_t g = 0; g < order_.size(); ++g) {
      ms += left_ms_[g][static_cast<std::size_t>(l.ran[g])];
      lost |= read_later_[g][static_cast<std::size_t>(l.ran[g])];
    }
    const Set gone = (of_forward_ | inputs_) & ~(l.resident | l.host | l.to_device);
    lost &= gone;
    for (Set seen = lost; lost != 0;) {
      const auto [g, n] = maker_[static_cast<std::size_t>(std::countr_zero(lost))];
      if (n < 0 || !may_repeat(l, g, n)) return kNever;
      const MemoryNode& maker = node(g, n);
      ms += maker.run_ms;
      const Set needed = set_of(maker.inputs) & gone & ~seen;
      lost = (lost & ~set_of(maker.outputs)) | needed;
      seen |= needed | set_of(maker.outputs);
    }
    return ms;
  }
  bool is_done(const Label& l) const {
    for (std::size_t g = 0; g < order_.size(); ++g)
      if (static_cast<std::size_t>(l.ran[g]) < order_[g].size()) return false;
    if (!p_.is_pair()) return true;
    const Start& start = starts_[static_cast<std::size_t>(l.start)];
    const Set there = l.resident & of_first_forward_ & read_in_backward_;
    return (there & start.resident) == start.resident && (l.host & start.host) == start.host;
  }

  bool beaten(const Label& l, int id) const {
    const auto found = best_.find(state_of(l));
    return found == best_.end() || !contains(found->second, id);
  }

  void add(Label label) {
    const double estimate = label.clock + left_ms(label);
    if (estimate == kNever || estimate > bound_ + kTolerance || label.live > limit_) return;
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

  // Runs a node, or repeats it; there is room for it. Returns false if something was recomputed in vain.
  bool compute(Label& l, int g, int n, bool again) const {
    const MemoryNode& node = this->node(g, n);
    const Set in = set_of(node.inputs), out = set_of(node.outputs), made = out & ~l.resident;
    const bool waits = ((l.to_host | l.to_device) & (in | out)) != 0;
    l.unread &= ~in;
    if (!again && l.unread != 0 && !waits) return false;
    if (!again) l.unread = 0;
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
    if (again && node.outputs.size() == 1) l.unread |= out;
    return true;
  }

  // Calls act(label) for each smallest set of values that leave room for so many bytes; they are freed.
  template <class F> void with_room(const Label& from, std::int64_t need, Set needed, const F& act) const {
    const std::int64_t missing = from.live + need - limit_;
    std::vector<int> choices;
    for (const int v : values_) {
      const Set s = set_of(v);
      if ((from.resident & s) && !(s & (needed | outputs_ | from.to_device)) &&
          !((s & inputs_) && p_.is_pair()))
        choices.push_back(v);
    }
    std::vector<int> chosen;
    const auto choose = [&](const auto& self, std::size_t next, std::int64_t left) -> void {
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
        chosen.push_back(choices[i]);
        self(self, i + 1, left - p_.values[static_cast<std::size_t>(choices[i])].bytes);
        chosen.pop_back();
      }
    };
    choose(choose, 0, missing);
  }

  void free(Label& l, int v) const {
    wait_for(l, set_of(v));
    step(l, MemoryStep::Kind::free, v);
    l.resident &= ~set_of(v);
    l.live -= p_.values[static_cast<std::size_t>(v)].bytes;
    l.may_return = true;
  }

  // Whether a node that has not run reads the value, in this period and before another takes its place.
  bool is_read_later(const Label& l, int v) const {
    for (std::size_t g = 0; g < order_.size(); ++g)
      if (read_later_[g][static_cast<std::size_t>(l.ran[g])] & set_of(v)) return true;
    return false;
  }

  // Frees what nothing needs any more: values of backward after their last reader, and those that none reads.
  void free_dead(Label& l, const MemoryNode& n) const {
    for (const auto* values : {&n.inputs, &n.outputs})
      for (const int v : *values) {
        if (kind(v) == Kind::parameter || !(l.resident & set_of(v)) || is_read_later(l, v)) continue;
        const Set s = set_of(v);
        const bool ends =
            (s & outputs_) && !((s & of_first_forward_ & read_in_backward_) && n.phase != Phase::forward);
        const bool next = (s & of_first_forward_ & read_in_backward_) && n.phase == Phase::forward;
        if (ends || next || (s & inputs_)) continue;
        if (!(s & of_forward_)) free(l, v);
      }
  }

  void expand(const Label& from, int id) {
    const auto child = [&] {
      Label l = from;
      l.parent = id;
      l.steps.clear();
      return l;
    };
    for (int g = 0; g < std::ssize(order_); ++g) {
      const auto ran = static_cast<std::size_t>(from.ran[static_cast<std::size_t>(g)]);
      if (ran == order_[static_cast<std::size_t>(g)].size()) continue;
      const int n = order_[static_cast<std::size_t>(g)][ran];
      const MemoryNode& next = node(g, n);
      const Set in = set_of(next.inputs), out = set_of(next.outputs);
      if ((in & ~from.resident) != 0) continue;
      Label l = child();
      // What remains of the value's earlier life, as of a pair's period before, goes first.
      for (const int v : next.outputs)
        if (l.resident & set_of(v)) free(l, v);
      with_room(l, bytes_of(out) + next.workspace_bytes, in, [&](Label&& roomy) {
        if (!compute(roomy, g, n, false)) return;
        ++roomy.ran[static_cast<std::size_t>(g)];
        free_dead(roomy, next);
        add(std::move(roomy));
      });
    }
    for (int g = 0; g < std::ssize(order_); ++g) {
      const bool wraps = p_.is_pair() && g == 0;
      for (int n = 0; n < std::ssize(order_[static_cast<std::size_t>(g)]); ++n) {
        const MemoryNode& again = node(g, n);
        const Set in = set_of(again.inputs), out = set_of(again.outputs);
        if (again.phase != Phase::forward || (out & intermediate_) != out || (out & ~from.resident) == 0)
          continue;
        if (!wraps && n >= from.ran[static_cast<std::size_t>(g)]) continue;
        if ((in & ~from.resident) != 0 || !may_repeat(from, g, n)) continue;
        with_room(child(), bytes_of(out & ~from.resident) + again.workspace_bytes, in | out,
                  [&](Label&& roomy) {
                    if (compute(roomy, g, n, true)) add(std::move(roomy));
                  });
      }
    }
    if (copies_)
      for (const int v : values_) {
        const Set s = set_of(v);
        if (!(s & intermediate_) || ((from.to_host | from.to_device) & s)) continue;
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
          l.may_leave = !on_host || !p_.link.duplex ? ~Set{0} : 0;
          l.may_return = on_host || !p_.link.duplex;
          add(std::move(l));
        };
        if (there) {
          if (from.may_leave & s) begin(child());
        } else if (from.may_return || from.live + p_.values[static_cast<std::size_t>(v)].bytes > limit_) {
          with_room(child(), p_.values[static_cast<std::size_t>(v)].bytes, s, begin);
        }
      }
    if (is_end(from) && !from.copies.empty()) {
      Label l = child();
      wait_for(l, ~Set{0});
      add(std::move(l));
    }
  }
  // All nodes have run; a pair may have to move values to where they were at the start.
  bool is_end(const Label& l) const {
    for (std::size_t g = 0; g < order_.size(); ++g)
      if (static_cast<std::size_t>(l.ran[g]) < order_[g].size()) return false;
    return true;
  }
  // Whether the value serves something from here on: a reader, or to make another value again, or a start.
  bool is_useful(const Label& l, int v) const {
    const Set s = set_of(v);
    return is_read_later(l, v) || (s & of_forward_) != 0;
  }

  std::optional<CostedPlan> plan_of(int id) const {
    std::vector<int> path;
    for (int at = id; at >= 0; at = labels_[static_cast<std::size_t>(at)].parent) path.push_back(at);
    MemoryPlan plan;
    const Label& last = labels_[static_cast<std::size_t>(id)];
    const Start& start = starts_[static_cast<std::size_t>(last.start)];
    for (const int v : values_) {
      if (p_.is_pair() && (start.resident & set_of(v))) plan.resident_at_start.push_back(v);
      if (p_.is_pair() && (start.host & set_of(v))) plan.host_at_start.push_back(v);
    }
    for (auto at = path.rbegin(); at != path.rend(); ++at) {
      const auto& steps = labels_[static_cast<std::size_t>(*at)].steps;
      plan.steps.insert(plan.steps.end(), steps.begin(), steps.end());
    }
    // What the step leaves behind: nothing but outputs, and a pair's inputs and next start.
    for (const int v : values_) {
      const Set s = set_of(v);
      const bool stays = (s & outputs_) || (p_.is_pair() && ((s & inputs_) || (s & start.resident)));
      if ((last.resident & s) && !stays) plan.steps.push_back({MemoryStep::Kind::free, v, -1, -1});
    }
    const MemoryCost cost = replay(p_, plan);
    return CostedPlan{std::move(plan), cost};
  }

  const MemoryProblem& p_;
  std::int64_t limit_;
  bool copies_;
  double bound_;
  std::vector<int> values_;    // all but parameters
  std::map<int, int> number_;  // of a value, among them
  Set inputs_ = 0, outputs_ = 0, intermediate_ = 0, of_forward_ = 0, of_first_forward_ = 0,
      read_in_backward_ = 0;
  std::vector<std::vector<int>> order_;           // per graph: its nodes in the order of the period
  std::vector<std::vector<double>> left_ms_;      // per graph and number of nodes that ran
  std::vector<std::vector<Set>> read_later_;      // the same: by a later node, and made before
  std::vector<std::vector<int>> repeated_until_;  // per graph and node: as long as at most so many have run
  struct Node {
    int graph = -1, node = -1;
  };
  std::array<Node, kMostValues> maker_{};  // of each value of forward
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
