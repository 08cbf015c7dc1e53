#include <tandem/core/lower.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>

#include <fmt/format.h>

#include <tandem/core/error.h>
#include <tandem/core/graph_ops.h>
#include <tandem/core/homes.h>
#include <tandem/core/team.h>

namespace tandem {
namespace {

std::size_t at(std::int32_t id) { return static_cast<std::size_t>(id); }

class Lowering {
 public:
  Lowering(const Graph& graph, std::span<const NodeId> order, const LowerOptions& options)
      : g_(graph),
        options_(options),
        p_(with_states()),
        homes_(find_homes(graph, order, p_)),
        members_(graph.values().size(), -1) {
    for (NodeId n = 0; n < static_cast<NodeId>(graph.nodes().size()); ++n)
      add_members(n);  // a reader may be listed before its source
    for (NodeId n : order)
      if (has_step(n)) add_step(g_.node(n));
    check_assigned();
  }
  Program take() { return std::move(p_); }

 private:
  Program with_states() const {
    Program p;
    p.devices = options_.devices;
    p.replicas = options_.replicas;
    p.microbatches = options_.microbatches;
    p.threads = options_.threads;
    for (const StateSlot& s : g_.slots()) {
      p.states.push_back({s.path, s.type, static_cast<BlockId>(p.blocks.size()), s.trained});
      p.blocks.push_back({s.path, s.stage, Arena::state, s.type.bytes()});
    }
    return p;
  }

  MemberId add_member(const std::string& name, BlockId block, std::int64_t offset, std::int64_t bytes,
                      int shift) {
    p_.members.push_back({name, block, offset, bytes, shift});
    return static_cast<MemberId>(p_.members.size()) - 1;
  }

  BlockId add_block(const std::string& name, int device, Arena arena, std::int64_t bytes) {
    p_.blocks.push_back({name, device, arena, bytes});
    return static_cast<BlockId>(p_.blocks.size()) - 1;
  }

  MemberId read_member(const Read& read) {
    const auto [found, fresh] = reads_.try_emplace({read.slot, read.age}, -1);
    if (fresh) {
      const StateBlock& state = p_.states[at(read.slot)];
      found->second = add_member(fmt::format("{}@{}", state.path, read.age), state.block, 0,
                                 state.type.bytes(), 1 - read.age);
    }
    return found->second;
  }

  MemberId output_member(const Node& node, std::size_t o, const std::string& name) {
    const ValueId v = node.outputs[o];
    const std::int64_t bytes = g_.type(v).bytes();
    if (const auto found = homes_.overwrites.find(v); found != homes_.overwrites.end()) {
      const Member source = p_.members[at(members_[at(found->second)])];
      return add_member(name, source.block, source.offset, bytes, source.shift);
    }
    if (const Home& home = homes_.of[at(v)])
      return add_member(name, home.block, home.offset, bytes, home.shift);
    const Arena arena = node.op->lane() == LaneKind::copy_out ? Arena::host : Arena::work;
    return add_member(name, add_block(name, node.tag.stage, arena, bytes), 0, bytes, 0);
  }

  LaneId lane_of(const Node& node) {
    const LaneKind kind = node.op->lane();
    const int index = kind == LaneKind::compute ? node.tag.lane : node.op->lane_index();
    const auto [found, fresh] =
        lanes_.try_emplace({node.tag.stage, kind, index}, static_cast<LaneId>(p_.lanes.size()));
    if (fresh) p_.lanes.push_back({node.tag.stage, kind, index});
    return found->second;
  }

  // Whatever became of the nodes, every assigned state has a step that writes it.
  void check_assigned() const {
    std::set<BlockId> written;
    for (const Step& s : p_.steps)
      for (MemberId m : s.writes) written.insert(p_.member(m).block);
    for (const Node& n : g_.nodes())
      if (const auto* assign = dynamic_cast<const Assign*>(n.op.get()))
        if (const StateBlock& state = p_.states[at(assign->slot)]; !written.contains(state.block))
          throw Error(fmt::format("state '{}' is assigned, but no step writes it", state.path));
  }

  static std::string name_of(const Node& node) {
    std::string name =
        fmt::format("{}{}{}", node.tag.path, node.tag.path.empty() ? "" : " ", node.op->label());
    if (node.tag.phase == Phase::backward) name += "'";
    if (node.tag.microbatch > 0) name += fmt::format(" mb{}", node.tag.microbatch);
    return name;
  }

  bool has_step(NodeId n) const {
    return !dynamic_cast<const Read*>(g_.node(n).op.get()) && !view_of(g_, g_.node(n)) &&
           !homes_.assigned_in_place.contains(n);
  }

  void add_members(NodeId n) {
    const Node& node = g_.node(n);
    if (const auto* read = dynamic_cast<const Read*>(node.op.get())) {
      members_[at(node.outputs[0])] = read_member(*read);
    } else if (const auto source = view_of(g_, node)) {
      members_[at(node.outputs[0])] = members_[at(*source)];
    } else {
      for (std::size_t o = 0; o < node.outputs.size(); ++o)
        members_[at(node.outputs[o])] =
            output_member(node, o, name_of(node) + (node.outputs.size() > 1 ? fmt::format(".{}", o) : ""));
    }
  }

  void add_step(const Node& node) {
    Step step;
    step.name = name_of(node);
    const LaneKind kind = node.op->lane();
    if (node.tag.channel < 0 &&
        (kind == LaneKind::collective || kind == LaneKind::send || kind == LaneKind::receive))
      throw Error(fmt::format("'{}' has no channel", step.name));
    step.lane = lane_of(node);
    step.lag = node.tag.lag;
    step.channel = node.tag.channel;
    step.op = node.op;
    step.barrier = node.op->is_barrier();
    step.tag = node.tag;
    step.inputs = g_.types(node.inputs);
    step.outputs = g_.types(node.outputs);
    for (ValueId v : node.inputs) step.reads.push_back(members_[at(v)]);
    if (const auto* assign = dynamic_cast<const Assign*>(node.op.get())) {  // a visible copy into the state
      const StateBlock& state = p_.states[at(assign->slot)];
      step.outputs = {state.type};
      step.writes.push_back(add_member(state.path + "'", state.block, 0, state.type.bytes(), 1));
    }
    for (ValueId v : node.outputs) step.writes.push_back(members_[at(v)]);
    step.in_place = overlaps_only_as_declared(node, step);
    if (const std::int64_t bytes = workspace_of(node, step); bytes > 0) {
      const std::string name = step.name + " workspace";
      const MemberId m = add_member(name, add_block(name, node.tag.stage, Arena::work, bytes), 0, bytes, 0);
      step.writes.push_back(m);
    }
    if (options_.cost) step.cost = options_.cost(step);
    p_.steps.push_back(std::move(step));
  }

  // May every output that lies in the block of an input lie there?
  bool overlaps_only_as_declared(const Node& node, const Step& step) const {
    const auto aliases = node.op->may_alias(step.inputs);
    bool any = false;
    for (std::size_t o = 0; o < step.writes.size(); ++o)
      for (std::size_t i = 0; i < step.reads.size(); ++i) {
        if (p_.members[at(step.reads[i])].block != p_.members[at(step.writes[o])].block) continue;
        const Member &r = p_.members[at(step.reads[i])], &w = p_.members[at(step.writes[o])];
        if (r.offset + r.bytes <= w.offset || w.offset + w.bytes <= r.offset) continue;
        any = true;
        if (std::none_of(aliases.begin(), aliases.end(), [&](const Alias& a) {
              return a.output == static_cast<int>(o) && a.input == static_cast<int>(i);
            }))
          return false;
      }
    return any;
  }

  std::int64_t workspace_of(const Node& node, const Step& step) {
    if (!options_.kernels) return 0;
    const auto [found, fresh] = workspaces_.try_emplace(signature(*node.op, step.inputs), 0);
    if (fresh) {
      const int threads = node.op->lane() == LaneKind::compute ? options_.threads : 1;
      const TeamSize team(threads);
      found->second = options_.kernels
                          ->make({*node.op, step.inputs, step.outputs, node.tag, threads,
                                  options_.microbatches, static_cast<std::uint64_t>(node.tag.channel)})
                          ->workspace();
    }
    return found->second;
  }

  const Graph& g_;
  const LowerOptions& options_;
  Program p_;
  const Homes homes_;
  std::vector<MemberId> members_;  // per value
  std::map<std::pair<SlotId, int>, MemberId> reads_;
  std::map<std::tuple<int, LaneKind, int>, LaneId> lanes_;
  std::unordered_map<std::string, std::int64_t> workspaces_;
};

}  // namespace

Program lower(const Graph& graph, std::span<const NodeId> order, const LowerOptions& options) {
  if (order.size() != graph.nodes().size())
    throw Error(fmt::format("the list order has {} nodes, the graph {}", order.size(), graph.nodes().size()));
  return Lowering(graph, order, options).take();
}

}  // namespace tandem
