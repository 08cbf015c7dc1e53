#include <tandem/memory/memory_machine.h>

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include <tandem/core/base/error.h>

namespace tandem::engine {

using Kind = MemoryValue::Kind;

MemoryMachine::MemoryMachine(const MemoryProblem& problem)
    : problem_(problem), inputs_alone_(problem.values.size()) {
  for (std::size_t v = 0; v < inputs_alone_.size(); ++v)
    if (problem.values[v].kind == Kind::input) {
      inputs_alone_[v].resident = inputs_alone_[v].defined = true;
      bytes_of_inputs_ += problem.values[v].bytes;
    }
  if (problem.is_ring())
    for (const MemoryNode& n : graph(0).nodes)
      if (n.phase == Phase::forward)
        for (const int v : n.outputs) inputs_alone_[static_cast<std::size_t>(v)].of_first_forward = true;
  for (int g = 0; g < std::ssize(problem.graphs); ++g)
    first_.push_back(problem.is_ring() && g == 0 ? graph(g).forward_nodes() : 0);
  begin();
}

void MemoryMachine::begin(const std::vector<int>& resident_at_start, const std::vector<int>& host_at_start) {
  values_ = inputs_alone_;
  live_ = 0;
  cost_ = {};
  add_bytes(problem_.static_bytes + bytes_of_inputs_);
  const auto check = [&](int v) {
    if (!at(v).of_first_forward)
      throw Error(fmt::format(
          "the memory plan's start: value {} is not of the forward pass of a ring's first graph", of(v).id));
  };
  for (const int v : resident_at_start) {
    check(v);
    if (value(v).resident)
      throw Error(fmt::format("the memory plan's start: value {} is there twice", of(v).id));
    value(v).resident = value(v).defined = value(v).resident_at_start = true;
    add_bytes(of(v).bytes);
  }
  for (const int v : host_at_start) {
    check(v);
    value(v).on_host = value(v).on_host_at_start = true;
  }
  next_ = first_;
  runs_.assign(first_.size(), 0);
  executed_ = 0;
  clock_ = to_host_ = from_host_ = 0;
}

void MemoryMachine::refuse(const std::string& why) const {
  const std::string what =
      current_->value >= 0 ? std::to_string(of(current_->value).id) : "'" + node(*current_).name + "'";
  throw Error(fmt::format("instruction {} of the memory plan, {} {}: {}", executed_, name_of(current_->kind),
                          what, why));
}
void MemoryMachine::refuse_value(const char* verb, int v, const char* why) const {
  refuse(fmt::format("it {} value {}, which {}", verb, of(v).id, why));
}

void MemoryMachine::add_bytes(std::int64_t bytes) {
  live_ += bytes;
  cost_.peak_bytes = std::max(cost_.peak_bytes, live_);
}

void MemoryMachine::execute(const MemoryStep& step) {
  current_ = &step;
  switch (step.kind) {
    case MemoryStep::Kind::alloc: alloc(step.value); break;
    case MemoryStep::Kind::free: release(step.value); break;
    case MemoryStep::Kind::run: run(step); break;
    case MemoryStep::Kind::recompute: recompute(step); break;
    case MemoryStep::Kind::d2h: copy_to_host(step.value); break;
    case MemoryStep::Kind::h2d: copy_to_device(step.value); break;
    case MemoryStep::Kind::wait: wait(step.value); break;
  }
  ++executed_;
}

void MemoryMachine::alloc(int v) {
  if (of(v).kind == Kind::parameter) refuse("a parameter always has memory");
  if (value(v).resident) refuse("it has memory");
  value(v).resident = true;
  value(v).defined = false;
  add_bytes(of(v).bytes);
}
void MemoryMachine::release(int v) {
  if (!value(v).resident) refuse("it has no memory");
  if (is_under_copy(v)) refuse("it is under copy");
  value(v).resident = value(v).defined = false;
  live_ -= of(v).bytes;
}

void MemoryMachine::compute(const MemoryNode& node, bool again) {
  for (const int v : node.inputs) {
    if (of(v).kind == Kind::parameter) continue;
    if (!at(v).resident) refuse_value("reads", v, "has no memory");
    if (is_under_copy(v)) refuse_value("reads", v, "is under copy");
    if (!at(v).defined) refuse_value("reads", v, "is undefined");
  }
  for (const int v : node.outputs) {
    if (!at(v).resident) refuse_value("makes", v, "has no memory");
    if (is_under_copy(v)) refuse_value("makes", v, "is under copy");
    value(v).defined = true;
    if (!again) value(v).on_host = false;
  }
  cost_.peak_bytes = std::max(cost_.peak_bytes, live_ + node.workspace_bytes);
  clock_ += node.run_ms;
}

void MemoryMachine::run(const MemoryStep& step) {
  const auto g = static_cast<std::size_t>(step.graph);
  const int nodes = static_cast<int>(graph(step.graph).nodes.size());
  if (runs_[g] == nodes) refuse("all nodes of its graph have run");
  if (step.node != next_[g])
    refuse(fmt::format("the next node of its graph is \'{}\'",
                       graph(step.graph).nodes[static_cast<std::size_t>(next_[g])].name));
  compute(node(step), false);
  if (node(step).phase == Phase::update)
    for (const int v : node(step).inputs) value(v).updated = of(v).kind == Kind::parameter;
  ++runs_[g];
  next_[g] = (next_[g] + 1) % nodes;
}

void MemoryMachine::recompute(const MemoryStep& step) {
  const auto g = static_cast<std::size_t>(step.graph);
  if (node(step).phase != Phase::forward) refuse("only forward nodes are recomputed");
  // A ring's first graph ran its forward in the period before.
  if (first_[g] == 0 && step.node >= runs_[g]) refuse("it has not run");
  for (const int v : node(step).outputs)
    if (of(v).kind != Kind::intermediate) refuse_value("makes", v, "is not intermediate");
  for (const int v : node(step).inputs)
    if (at(v).updated) refuse_value("reads", v, "an update has changed");
  compute(node(step), true);
  cost_.recompute_ms += node(step).run_ms;
}

void MemoryMachine::begin_copy(int v, double& channel) {
  value(v).copied_at = channel = std::max(channel, clock_) + problem_.copy_ms(v);
  value(v).was_copied = true;
}
void MemoryMachine::check_can_move(int v) const {
  if (of(v).kind != Kind::intermediate) refuse("only intermediate values are copied");
  if (!at(v).resident) refuse("it has no memory");
  if (is_under_copy(v)) refuse("it is under copy");
}
void MemoryMachine::copy_to_host(int v) {
  check_can_move(v);
  if (!at(v).defined) refuse("it is undefined");
  value(v).copy = Value::to_host;
  begin_copy(v, to_host_);
}
void MemoryMachine::copy_to_device(int v) {
  check_can_move(v);
  if (!at(v).on_host) refuse("it is not on the host");
  value(v).copy = Value::to_device;
  value(v).defined = true;
  begin_copy(v, problem_.link.duplex ? from_host_ : to_host_);
}
void MemoryMachine::wait(int v) {
  if (!at(v).was_copied) refuse("it was never copied");
  cost_.stall_ms += std::max(0.0, at(v).copied_at - clock_);
  clock_ = std::max(clock_, at(v).copied_at);
  if (at(v).copy == Value::to_host) value(v).on_host = true;
  value(v).copy = Value::none;
}

MemoryCost MemoryMachine::finish() const {
  for (std::size_t g = 0; g < next_.size(); ++g)
    if (runs_[g] != std::ssize(problem_.graphs[g].nodes))
      throw Error(fmt::format("the memory plan's end: node '{}' of graph '{}' has not run",
                              problem_.graphs[g].nodes[static_cast<std::size_t>(next_[g])].name,
                              problem_.graphs[g].name));
  for (int v = 0; v < std::ssize(values_); ++v) {
    const auto refuse_end = [&](const char* why) {
      throw Error(fmt::format("the memory plan's end: value {} {}", of(v).id, why));
    };
    const bool there = at(v).resident && at(v).defined;
    if (is_under_copy(v)) refuse_end("is under copy");
    if (of(v).kind == Kind::output && !there) refuse_end("is an output, and not there");
    if (!problem_.is_ring()) continue;
    const bool was_there = of(v).kind == Kind::input || at(v).resident_at_start;
    if (was_there && !there) refuse_end("was there at the start, and is not");
    if (!was_there && at(v).resident && of(v).kind != Kind::output)
      refuse_end("is there, and was not at the start");
    if (at(v).on_host_at_start && !at(v).on_host) refuse_end("was on the host at the start, and is not");
    if (at(v).of_first_forward && at(v).on_host && !at(v).on_host_at_start)
      refuse_end("is on the host, and was not at the start");
  }
  MemoryCost cost = cost_;
  cost.time_ms = clock_;
  return cost;
}

}  // namespace tandem::engine
