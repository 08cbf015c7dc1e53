#include <tandem/dist/data_parallel.h>

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include <tandem/core/base/error.h>
#include <tandem/dist/all_reduce_policies.h>
#include <tandem/ops/collective.h>
#include <tandem/ops/timer.h>

namespace tandem::engine {
namespace {

// Replaces `values` by their sums over the replicas. They are summed when `timer` is there too, if there is
// one.
void reduce(Graph& g, int replicas, const std::vector<ValueId*>& values, const Tag& tag, ValueId timer = -1) {
  std::vector<ValueId> inputs;
  for (const ValueId* v : values) inputs.push_back(*v);
  if (timer >= 0) inputs.push_back(timer);
  const NodeId n = g.add(std::make_shared<AllReduceOp>(replicas), inputs, tag);
  for (std::size_t i = 0; i < values.size(); ++i) *values[i] = g.node(n).outputs[i];
}

// Gradients that are reduced together.
struct Group {
  NodeId ready = -1;  // the last node that makes one of them
  std::vector<StateId> states;
  int threads = 1;
  double earliest_ms = 0;
};

Group group_of(const TrainingGraph& training, const FusionGroup& fused, std::set<StateId>& grouped) {
  const Graph& g = training.graph;
  Group group;
  group.threads = fused.threads;
  group.earliest_ms = fused.earliest_ms;
  for (const std::string& path : fused.parameters) {
    const StateId s = g.find_state(path);
    if (s < 0 || !training.grads.contains(s))
      throw Error(fmt::format("fusion group: there is no trained parameter '{}'", path));
    if (!grouped.insert(s).second)
      throw Error(fmt::format("fusion group: parameter '{}' is in two groups", path));
    const State &state = g.state(s), &first = g.state(group.states.empty() ? s : group.states[0]);
    if (state.device != first.device || state.type.dtype != first.type.dtype)
      throw Error(
          fmt::format("fusion group: '{}' and '{}' differ in device or dtype", state.path, first.path));
    group.states.push_back(s);
    group.ready = std::max(group.ready, g.value(training.grads.at(s)).producer);
  }
  return group;
}

// All groups, in the order in which backward completes them. A gradient in no group forms its own.
std::vector<Group> groups_in_order(const TrainingGraph& training, const std::vector<FusionGroup>& groups) {
  std::set<StateId> grouped;
  std::vector<Group> all;
  for (const FusionGroup& group : groups)
    if (!group.parameters.empty()) all.push_back(group_of(training, group, grouped));
  for (const auto& [state, value] : training.grads)
    if (!grouped.contains(state)) all.push_back({training.graph.value(value).producer, {state}});
  std::ranges::stable_sort(all, {}, &Group::ready);
  return all;
}

Tag tag_of(const Graph& g, const Group& group, std::int64_t channel) {
  const State& first = g.state(group.states[0]);
  const std::string others = group.states.size() > 1 ? fmt::format(" +{}", group.states.size() - 1) : "";
  const Tag& last = g.node(group.ready).tag;
  return tag_of(Phase::backward, first.path + others, last.stage, last.device)
      .of_microbatch(last.microbatch)
      .on_channel(channel)
      .by_threads(group.threads);
}

// The timers of the groups that may not begin at once. Those of a device share a lane, so each begins when
// the one before has ended. No value is read by two nodes that join their operands, which would copy it.
class Timers {
 public:
  /// Returns the value of a timer that ends `ms` after the device's backward pass began.
  ValueId add(Graph& g, int device, DType dtype, double ms) {
    Timed& timed = devices_.try_emplace(device, first_of_backward(g, device)).first->second;
    const Tag tag = tag_of(Phase::backward, fmt::format("{} ms", ms), timed.first.stage, device)
                        .of_microbatch(timed.first.microbatch);
    const auto timer = std::make_shared<TimerOp>(std::max(0.0, ms - timed.ms), dtype);
    timed.ms = std::max(ms, timed.ms);
    return g.node(g.add(timer, {timed.begin}, tag)).outputs[0];
  }

 private:
  struct Timed {
    Tag first{};         // of the first node of backward
    ValueId begin = -1;  // the first value of backward
    double ms = 0;       // by the timers so far
  };
  // Begins with what the first computation of a device's backward pass takes from backward on another device.
  // The last stage takes nothing: there it is what the first computation makes, a constant.
  static Timed first_of_backward(const Graph& g, int device) {
    for (const Node& n : g.nodes()) {
      if (n.tag.phase != Phase::backward || n.tag.device != device || n.outputs.empty()) continue;
      for (const ValueId v : n.inputs)
        if (g.producer(v).tag.phase == Phase::backward) return {n.tag, v};
      return {n.tag, n.outputs[0]};
    }
    throw Error(fmt::format("device {} computes no gradient", device));  // then it has none to reduce
  }
  std::map<int, Timed> devices_;
};

}  // namespace

std::vector<std::vector<GradientLayer>> gradient_layers(const TrainingGraph& training) {
  std::vector<std::vector<GradientLayer>> devices;
  for (const Group& gradient : groups_in_order(training, {})) {
    const State& state = training.graph.state(gradient.states[0]);
    const auto device = static_cast<std::size_t>(state.device);
    devices.resize(std::max(devices.size(), device + 1));
    devices[device].push_back({state.path, 0, static_cast<double>(state.type.bytes()), {state.path}});
  }
  return devices;
}

std::vector<FusionGroup> fusion_groups(const std::vector<GradientLayer>& layers,
                                       const std::vector<AllReduceGroup>& groups) {
  std::vector<FusionGroup> fused;
  for (const AllReduceGroup& group : groups) {
    FusionGroup& together = fused.emplace_back();
    together.threads = group.rates.threads;
    together.earliest_ms = group.earliest_ms;
    for (int l = group.first_layer; l <= group.last_layer; ++l)
      std::ranges::copy(layers[static_cast<std::size_t>(l)].parameters,
                        std::back_inserter(together.parameters));
  }
  return fused;
}

std::vector<FusionGroup> fusion_groups(const std::vector<std::vector<GradientLayer>>& devices,
                                       const std::string& policy) {
  const AllReducePolicy& planner = all_reduce_policy(policy);
  if (planner.needs_times)
    throw Error(fmt::format("the policy '{}' plans from measured times, and there are none", policy));
  std::vector<FusionGroup> fused;
  for (const auto& layers : devices) {
    if (layers.empty()) continue;
    const auto one_thread = [](double) { return ThreadRates{1, 1, 1, 1}; };
    std::ranges::move(fusion_groups(layers, planner.plan({layers, {}, one_thread}).groups),
                      std::back_inserter(fused));
  }
  return fused;
}

TrainingGraph add_all_reduces(TrainingGraph training, int replicas, const std::vector<FusionGroup>& groups) {
  if (replicas == 1) return training;
  std::int64_t channel = training.graph.next_channel();
  Timers timers;
  for (const Group& group : groups_in_order(training, groups)) {
    std::vector<ValueId*> values;
    for (StateId s : group.states) values.push_back(&training.grads.at(s));
    Tag tag = tag_of(training.graph, group, channel++);
    ValueId timer = -1;
    if (group.earliest_ms > 0)
      timer =
          timers.add(training.graph, tag.device, training.graph.type(*values[0]).dtype, group.earliest_ms);
    reduce(training.graph, replicas, values, tag, timer);
  }
  // Results are reduced last. The loss is computed before the gradients; if its all-reduce came first, those
  // of the gradients would wait for it.
  for (auto& [name, value] : training.results) {
    Tag tag = training.graph.producer(value).tag.named(name).on_channel(channel++);
    if (!training.grads.empty()) tag = tag.in_phase(Phase::backward).at({Anchor::itself});
    reduce(training.graph, replicas, {&value}, tag);
  }
  return training;
}

}  // namespace tandem::engine
