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
  Reducer(Graph& graph, int replicas) : g_(graph), replicas_(replicas) {
    for (const Node& n : graph.nodes()) {
      channel_ = std::max(channel_, n.tag.channel + 1);
      for (ValueId v : n.inputs) ++uses_[v];
    }
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
  std::int64_t channel_ = 0;
  std::map<ValueId, int> uses_;  // other than by its own all-reduce
  std::set<ValueId> announced_, taken_;
};

}  // namespace

void add_all_reduces(Graph& graph, int replicas, const std::vector<std::vector<std::string>>& groups,
                     std::map<SlotId, ValueId>& grads, std::map<std::string, ValueId>& results) {
  if (replicas == 1) return;
  Reducer reducer(graph, replicas);
  std::set<SlotId> grouped;
  struct Group {
    NodeId ready;  // the last of its gradients
    std::vector<SlotId> slots;
  };
  std::vector<Group> all;
  const auto made_at = [&](SlotId s) { return graph.value(grads.at(s)).producer; };
  for (const auto& group : groups) {
    Group g{-1, {}};
    for (const std::string& path : group) {
      const SlotId s = graph.find_slot(path);
      if (s < 0 || !grads.contains(s))
        throw Error(fmt::format("fusion group: there is no trained parameter '{}'", path));
      if (!grouped.insert(s).second)
        throw Error(fmt::format("fusion group: parameter '{}' is in two groups", path));
      const StateSlot &slot = graph.slot(s), &first = graph.slot(g.slots.empty() ? s : g.slots[0]);
      if (slot.stage != first.stage || slot.type.dtype != first.type.dtype)
        throw Error(
            fmt::format("fusion group: '{}' and '{}' differ in stage or dtype", slot.path, first.path));
      g.slots.push_back(s);
      g.ready = std::max(g.ready, made_at(s));
    }
    if (!g.slots.empty()) all.push_back(std::move(g));
  }
  for (const auto& [slot, value] : grads)
    if (!grouped.contains(slot)) all.push_back({made_at(slot), {slot}});
  std::stable_sort(all.begin(), all.end(), [](const Group& a, const Group& b) { return a.ready < b.ready; });

  for (const auto& [slot, value] : grads) reducer.announce(value);
  for (const auto& [name, value] : results) reducer.announce(value);
  for (const Group& g : all) {
    Tag tag;
    tag.phase = Phase::backward;
    tag.stage = graph.slot(g.slots[0]).stage;
    tag.path =
        graph.slot(g.slots[0]).path + (g.slots.size() > 1 ? fmt::format(" +{}", g.slots.size() - 1) : "");
    std::vector<ValueId*> values;
    for (SlotId s : g.slots) values.push_back(&grads.at(s));
    reducer.reduce(values, tag);
  }
  for (auto& [name, value] : results) {
    Tag tag = graph.node(graph.value(value).producer).tag;
    tag.path = name;
    reducer.reduce({&value}, tag);
  }
}

}  // namespace tandem
