#include <tandem/dist/data_parallel.h>

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include <tandem/core/error.h>
#include <tandem/core/graph_ops.h>
#include <tandem/ops/collective.h>
#include <tandem/ops/copy.h>

namespace tandem {
namespace {

class Reducer {
 public:
  Reducer(Graph& graph, int replicas) : g_(graph), replicas_(replicas), channel_(graph.next_channel()) {
    for (const Node& n : graph.nodes())
      for (ValueId v : n.inputs) ++uses_[v];
  }
  /// To be called for every value before the first is reduced: one that is reduced twice is not its own.
  void announce(ValueId v) {
    if (!announced_.insert(v).second) ++uses_[v];
  }

  void reduce(const std::vector<ValueId*>& values, Tag tag) {
    std::vector<ValueId> in;
    for (ValueId* v : values) in.push_back(own(*v, tag));
    tag.channel = channel_++;
    const NodeId n = g_.add(std::make_shared<AllReduce>(replicas_), in, tag);
    for (std::size_t i = 0; i < values.size(); ++i) *values[i] = g_.node(n).outputs[i];
  }

 private:
  // An all-reduce works in place: a value that anything else reads, or that lies in another's place, is
  // copied.
  ValueId own(ValueId v, const Tag& tag) {
    const Node& maker = g_.node(g_.value(v).producer);
    const bool source = dynamic_cast<const Read*>(maker.op.get()) != nullptr;
    if (!view_of(g_, maker) && !source && uses_[v] == 0 && taken_.insert(v).second) return v;
    return g_.node(g_.add(std::make_shared<Copy>(), {v}, tag)).outputs[0];
  }

  Graph& g_;
  int replicas_;
  std::int64_t channel_;
  std::map<ValueId, int> uses_;  // other than by its own all-reduce
  std::set<ValueId> announced_, taken_;
};

// Gradients that are reduced together.
struct Group {
  NodeId ready = -1;  // the last of their makers
  std::vector<SlotId> slots;
};

Group group_of(const StepGraph& step, const std::vector<std::string>& paths, std::set<SlotId>& grouped) {
  const Graph& g = step.graph;
  Group group;
  for (const std::string& path : paths) {
    const SlotId s = g.find_slot(path);
    if (s < 0 || !step.grads.contains(s))
      throw Error(fmt::format("fusion group: there is no trained parameter '{}'", path));
    if (!grouped.insert(s).second)
      throw Error(fmt::format("fusion group: parameter '{}' is in two groups", path));
    const StateSlot &slot = g.slot(s), &first = g.slot(group.slots.empty() ? s : group.slots[0]);
    if (slot.stage != first.stage || slot.type.dtype != first.type.dtype)
      throw Error(fmt::format("fusion group: '{}' and '{}' differ in stage or dtype", slot.path, first.path));
    group.slots.push_back(s);
    group.ready = std::max(group.ready, g.value(step.grads.at(s)).producer);
  }
  return group;
}

// In the order in which backward has them ready; who is in no group is one alone.
std::vector<Group> groups_in_order(const StepGraph& step,
                                   const std::vector<std::vector<std::string>>& groups) {
  std::set<SlotId> grouped;
  std::vector<Group> all;
  for (const auto& paths : groups)
    if (!paths.empty()) all.push_back(group_of(step, paths, grouped));
  for (const auto& [slot, value] : step.grads)
    if (!grouped.contains(slot)) all.push_back({step.graph.value(value).producer, {slot}});
  std::stable_sort(all.begin(), all.end(), [](const Group& a, const Group& b) { return a.ready < b.ready; });
  return all;
}

Tag tag_of(const Graph& g, const Group& group) {
  const StateSlot& first = g.slot(group.slots[0]);
  Tag tag;
  tag.phase = Phase::backward;
  tag.stage = first.stage;
  tag.path = first.path;
  if (group.slots.size() > 1) tag.path += fmt::format(" +{}", group.slots.size() - 1);
  return tag;
}

}  // namespace

StepGraph add_all_reduces(StepGraph step, int replicas, const std::vector<std::vector<std::string>>& groups) {
  if (replicas == 1) return step;
  Reducer reducer(step.graph, replicas);
  for (const auto& [slot, value] : step.grads) reducer.announce(value);
  for (const auto& [name, value] : step.results) reducer.announce(value);
  for (const Group& group : groups_in_order(step, groups)) {
    std::vector<ValueId*> values;
    for (SlotId s : group.slots) values.push_back(&step.grads.at(s));
    reducer.reduce(values, tag_of(step.graph, group));
  }
  for (auto& [name, value] : step.results) {
    Tag tag = step.graph.node(step.graph.value(value).producer).tag;
    tag.path = name;
    reducer.reduce({&value}, tag);
  }
  return step;
}

}  // namespace tandem
