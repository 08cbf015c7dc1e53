#include "memory_interpreter.h"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <tandem/core/base/error.h>

namespace tandem::testing {
using namespace engine;
namespace {

using Kind = MemoryValue::Kind;
using Step = MemoryStep::Kind;

class Interpreter {
 public:
  Interpreter(const MemoryProblem& problem, const MemoryPlan& plan)
      : p_(problem),
        there_(plan.resident_at_start.begin(), plan.resident_at_start.end()),
        host_(plan.host_at_start.begin(), plan.host_at_start.end()),
        ran_(problem.graphs.size()) {
    if (is_ring_)
      for (const MemoryNode& n : p_.graphs[0].nodes)
        if (n.phase == Phase::forward) first_forward_.insert(n.outputs.begin(), n.outputs.end());
    require(std::ranges::includes(first_forward_, there_) && std::ranges::includes(first_forward_, host_));
    for (int v = 0; v < std::ssize(p_.values); ++v)
      if (of(v).kind == Kind::input) there_.insert(v);
    there_at_start_ = there_, host_at_start_ = host_;
    for (const int v : there_) live_ += of(v).bytes;
    cost_.peak_bytes = live_;
  }

  void execute(const MemoryStep& s, std::ptrdiff_t number) {
    where_ = fmt::format("instruction {}, {},", number, name_of(s.kind));
    switch (s.kind) {
      case Step::alloc:
        require(of(s.value).kind != Kind::parameter && there_.insert(s.value).second);
        undefined_.insert(s.value);
        live_ += of(s.value).bytes;
        break;
      case Step::free:
        require(there_.erase(s.value) && !moving_.contains(s.value));
        live_ -= of(s.value).bytes;
        break;
      case Step::d2h:
      case Step::h2d: copy(s); break;
      case Step::wait:
        require(copied_.contains(s.value));
        cost_.stall_ms += std::max(0.0, copied_[s.value] - cost_.time_ms);
        cost_.time_ms = std::max(cost_.time_ms, copied_[s.value]);
        moving_.erase(s.value);
        break;
      case Step::run:
      case Step::recompute: compute(s); break;
    }
    cost_.peak_bytes = std::max(cost_.peak_bytes, live_);
  }

  MemoryCost end() {
    where_ = "end";
    require(moving_.empty());
    for (std::size_t g = 0; g < ran_.size(); ++g) require(ran_[g] == std::ssize(p_.graphs[g].nodes));
    for (int v = 0; v < std::ssize(p_.values); ++v) {
      require(of(v).kind != Kind::output || is_readable(v));
      if (!is_ring_) continue;
      require(there_at_start_.contains(v) ? is_readable(v)
                                          : !there_.contains(v) || of(v).kind == Kind::output);
      require(!first_forward_.contains(v) || host_.contains(v) == host_at_start_.contains(v));
    }
    return cost_;
  }

 private:
  const MemoryValue& of(int v) const { return p_.values.at(static_cast<std::size_t>(v)); }
  void require(bool ok) const {
    if (!ok) throw Error(fmt::format("the {} of a memory plan is wrong", where_));
  }
  bool is_readable(int v) const {
    return there_.contains(v) && !undefined_.contains(v) && !moving_.contains(v);
  }

  void copy(const MemoryStep& s) {
    require(of(s.value).kind == Kind::intermediate && there_.contains(s.value));
    require(moving_.insert(s.value).second);
    require(s.kind == Step::d2h ? !undefined_.contains(s.value) : host_.contains(s.value));
    double& channel = channels_[s.kind == Step::h2d && p_.link.duplex];
    channel =
        std::max(channel, cost_.time_ms) + static_cast<double>(of(s.value).bytes) / p_.link.bytes_per_ms;
    copied_[s.value] = channel;
    s.kind == Step::d2h ? (void)host_.insert(s.value) : (void)undefined_.erase(s.value);
  }

  void compute(const MemoryStep& s) {
    const auto g = static_cast<std::size_t>(s.graph);
    const MemoryGraph& graph = p_.graphs.at(g);
    const MemoryNode& n = graph.nodes.at(static_cast<std::size_t>(s.node));
    const bool begins_with_backward = is_ring_ && g == 0;  // its forward ran in the period before
    if (s.kind == Step::run) {
      const std::int64_t nodes = std::ssize(graph.nodes),
                         first = begins_with_backward ? graph.forward_nodes() : 0;
      require(ran_[g] < nodes && s.node == (first + ran_[g]++) % nodes);
    } else {
      require(n.phase == Phase::forward && (begins_with_backward || s.node < ran_[g]));
      for (const int v : n.inputs) require(!updated_.contains(v));
      for (const int v : n.outputs) require(of(v).kind == Kind::intermediate);
      cost_.recompute_ms += n.run_ms;
    }
    for (const int v : n.inputs) {
      require(of(v).kind == Kind::parameter || is_readable(v));
      if (of(v).kind == Kind::parameter && n.phase == Phase::update) updated_.insert(v);
    }
    for (const int v : n.outputs) {
      require(there_.contains(v) && !moving_.contains(v));
      undefined_.erase(v);
      if (s.kind == Step::run) host_.erase(v);
    }
    cost_.peak_bytes = std::max(cost_.peak_bytes, live_ + n.workspace_bytes);
    cost_.time_ms += n.run_ms;
  }

  const MemoryProblem& p_;
  const bool is_ring_ = p_.graphs.size() > 1;
  std::string where_ = "start";
  std::set<int> there_, host_, undefined_, moving_;
  std::set<int> first_forward_;  // what forward of a ring's first graph makes
  std::set<int> there_at_start_, host_at_start_;
  std::set<int> updated_;          // parameters
  std::vector<std::int64_t> ran_;  // nodes, by graph
  std::map<int, double> copied_;   // when each value's last copy ends
  double channels_[2] = {};        // when they are free
  std::int64_t live_ = p_.static_bytes;
  MemoryCost cost_;
};

}  // namespace

MemoryCost interpreted(const MemoryProblem& problem, const MemoryPlan& plan) {
  Interpreter interpreter(problem, plan);
  for (const MemoryStep& s : plan.steps) interpreter.execute(s, &s - plan.steps.data());
  return interpreter.end();
}

void expect_replays(const MemoryProblem& p, const CostedPlan& plan) {
  const MemoryCost cost = replay(p, plan.plan), other = interpreted(p, plan.plan);
  EXPECT_EQ(plan.cost.peak_bytes, cost.peak_bytes);
  EXPECT_EQ(plan.cost.peak_bytes, other.peak_bytes);
  EXPECT_DOUBLE_EQ(plan.cost.time_ms, cost.time_ms);
  EXPECT_DOUBLE_EQ(plan.cost.time_ms, other.time_ms);
  EXPECT_DOUBLE_EQ(plan.cost.stall_ms, other.stall_ms);
  EXPECT_DOUBLE_EQ(plan.cost.recompute_ms, other.recompute_ms);
}

}  // namespace tandem::testing
