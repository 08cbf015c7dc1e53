#include <tandem/core/schedule/lower.h>

#include <algorithm>
#include <tuple>
#include <unordered_map>

#include <fmt/format.h>

#include <tandem/core/base/error.h>
#include <tandem/core/base/team.h>
#include <tandem/core/graph/graph_ops.h>
#include <tandem/core/schedule/accesses.h>

namespace tandem::engine {
namespace {

class Lowering {
 public:
  Lowering(const Graph& graph, std::span<const NodeId> order, const BufferAssignment& buffers,
           const LowerOptions& options, std::span<const NodeWait> waits)
      : g_(graph),
        buffers_(buffers),
        options_(options),
        p_(with_states()),
        members_(graph.values().size(), -1) {
    add_lanes();
    for (const NodeId n : graph.nodes().ids()) add_members(n);  // a reader may be listed before its source
    IdVector<NodeId, InstructionId> instructions(graph.nodes().size(), -1);
    for (NodeId n : order) {
      if (!has_instruction(n)) continue;
      instructions[n] = p_.instructions.next_id();
      add_instruction(g_.node(n));
    }
    for (const NodeWait& w : waits)
      p_.instruction(instructions[w.node]).waits.push_back({instructions[w.awaited], w.back});
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
    p.kernels = options_.kernels;
    p.blocks = buffers_.blocks;
    for (const StateId s : g_.states().ids())
      p.states.push_back({g_.state(s).path, g_.state(s).type, block_of(s), g_.state(s).trained});
    return p;
  }

  MemberId add_member(const std::string& name, BlockId block, std::int64_t offset, std::int64_t bytes,
                      int shift) {
    p_.members.push_back({name, block, offset, bytes, shift});
    return p_.members.next_id() - 1;
  }

  BlockId add_block(const std::string& name, int device, Arena arena, std::int64_t bytes) {
    p_.blocks.push_back({name, device, arena, bytes});
    return p_.blocks.next_id() - 1;
  }

  MemberId read_member(const ReadOp& read) {
    const auto [found, fresh] = reads_.try_emplace({read.state, read.age, read.models.first}, -1);
    if (fresh) {
      const StateBlock& state = p_.states[read.state];
      found->second = add_member(fmt::format("{}@{}", state.path, read.age), state.block,
                                 offset_of(read.models, state.type), read.type.bytes(), 1 - read.age);
    }
    return found->second;
  }

  MemberId output_member(const Node& node, std::size_t o, const std::string& name) {
    const ValueId v = node.outputs[o];
    const std::int64_t bytes = g_.type(v).bytes();
    if (const auto found = buffers_.overwrites.find(v); found != buffers_.overwrites.end()) {
      const Member source = p_.members[members_[found->second]];
      return add_member(name, source.block, source.offset, bytes, source.shift);
    }
    if (const Location& shared = buffers_.location[v])
      return add_member(name, shared.block, shared.offset, bytes, shared.shift);
    const Arena arena = node.op->makes_host_copy() ? Arena::host : Arena::work;
    return add_member(name, add_block(name, node.tag.device, arena, bytes), 0, bytes, 0);
  }

  using LaneKey =
      std::tuple<LaneKind, int, int>;  // kind, index, device: the order in which timelines have them
  static LaneKey lane_key(const Node& node) {
    const LaneKind kind = node.op->lane();
    return {kind, kind == LaneKind::compute ? node.tag.lane : node.op->lane_index(), node.tag.device};
  }
  void add_lanes() {
    for (const NodeId n : g_.nodes().ids())
      if (has_instruction(n)) lanes_.try_emplace(lane_key(g_.node(n)));
    for (auto& [key, lane] : lanes_) {
      const auto& [kind, index, device] = key;
      lane = p_.lanes.next_id();
      p_.lanes.push_back({device, kind, index});
    }
  }

  // Checks that some instruction writes every assigned state, also if its assign has no instruction.
  void check_assigned() const {
    std::set<BlockId> written;
    for (const Instruction& s : p_.instructions)
      for (MemberId m : s.writes) written.insert(p_.member(m).block);
    for (const Node& n : g_.nodes())
      if (const auto* assign = as<AssignOp>(n))
        if (const StateBlock& state = p_.states[assign->state]; !written.contains(state.block))
          throw Error(fmt::format("state '{}' is assigned, but no instruction writes it", state.path));
  }

  static std::string name_of(const Node& node) {
    std::string name =
        fmt::format("{}{}{}", node.tag.path, node.tag.path.empty() ? "" : " ", node.op->label());
    if (node.tag.phase == Phase::backward) name += "'";
    if (node.tag.microbatch > 0 && node.op->lane() != LaneKind::collective)
      name += fmt::format(" mb{}", node.tag.microbatch);
    return name;
  }

  bool has_instruction(NodeId n) const { return engine::has_instruction(g_, n, buffers_); }

  void add_members(NodeId n) {
    const Node& node = g_.node(n);
    if (const auto* read = as<ReadOp>(node)) {
      members_[node.outputs[0]] = read_member(*read);
    } else if (const auto source = view_of(g_, node)) {
      members_[node.outputs[0]] = members_[*source];
    } else {
      for (std::size_t o = 0; o < node.outputs.size(); ++o)
        members_[node.outputs[o]] =
            output_member(node, o, name_of(node) + (node.outputs.size() > 1 ? fmt::format(".{}", o) : ""));
    }
  }

  void add_instruction(const Node& node) {
    Instruction instruction;
    instruction.name = name_of(node);
    const LaneKind kind = node.op->lane();
    if (node.tag.channel < 0 &&
        (kind == LaneKind::collective || kind == LaneKind::send || kind == LaneKind::receive))
      throw Error(fmt::format("'{}' has no channel", instruction.name));
    instruction.lane = lanes_.at(lane_key(node));
    instruction.lag = node.tag.lag;
    instruction.channel = node.tag.channel;
    instruction.op = node.op;
    instruction.barrier = node.op->is_barrier();
    instruction.tag = node.tag;
    instruction.inputs = g_.types(node.inputs);
    instruction.outputs = g_.types(node.outputs);
    for (ValueId v : node.inputs) instruction.reads.push_back(members_[v]);
    if (const auto* assign = as<AssignOp>(node)) {  // an explicit copy into the state
      const StateBlock& state = p_.states[assign->state];
      instruction.outputs = instruction.inputs;
      instruction.writes.push_back(add_member(state.path + "'", state.block,
                                              offset_of(assign->models, state.type),
                                              instruction.inputs[0].bytes(), 1));
    }
    for (ValueId v : node.outputs) instruction.writes.push_back(members_[v]);
    instruction.in_place = overlaps_only_as_declared(node, instruction);
    if (const std::int64_t bytes = workspace_of(node, instruction); bytes > 0) {
      const std::string name = instruction.name + " workspace";
      const MemberId m = add_member(name, add_block(name, node.tag.device, Arena::work, bytes), 0, bytes, 0);
      instruction.writes.push_back(m);
    }
    if (options_.cost) instruction.cost = options_.cost(instruction);
    p_.instructions.push_back(std::move(instruction));
  }

  // Returns whether outputs overlap inputs, and the op declares every such pair (may_alias).
  bool overlaps_only_as_declared(const Node& node, const Instruction& instruction) const {
    const auto aliases = node.op->may_alias(instruction.inputs);
    bool any = false;
    for (std::size_t o = 0; o < instruction.writes.size(); ++o)
      for (std::size_t i = 0; i < instruction.reads.size(); ++i) {
        if (!overlap(p_.member(instruction.reads[i]), p_.member(instruction.writes[o]))) continue;
        any = true;
        if (std::ranges::none_of(aliases, [&](const Alias& a) {
              return a.output == static_cast<int>(o) && a.input == static_cast<int>(i);
            }))
          return false;
      }
    return any;
  }

  std::int64_t workspace_of(const Node& node, const Instruction& instruction) {
    if (!options_.kernels) return 0;
    const auto [found, fresh] = workspaces_.try_emplace(signature(*node.op, instruction.inputs), 0);
    if (fresh) {
      const bool computes = node.op->lane() == LaneKind::compute;
      const int threads = computes ? options_.threads : node.tag.threads;
      const TeamSize team(computes ? threads : 1);
      found->second = options_.kernels
                          ->make({*node.op, instruction.inputs, instruction.outputs, node.tag, threads,
                                  options_.microbatches, static_cast<std::uint64_t>(node.tag.channel)})
                          ->workspace();
    }
    return found->second;
  }

  const Graph& g_;
  const BufferAssignment& buffers_;
  const LowerOptions& options_;
  Program p_;
  IdVector<ValueId, MemberId> members_;                      // per value
  std::map<std::tuple<StateId, int, int>, MemberId> reads_;  // by state, age, first model
  std::map<LaneKey, LaneId> lanes_;
  std::unordered_map<std::string, std::int64_t> workspaces_;
};

}  // namespace

bool has_instruction(const Graph& graph, NodeId node, const BufferAssignment& buffers) {
  const Node& n = graph.node(node);
  return !as<ReadOp>(n) && !view_of(graph, n) && !buffers.assigned_in_place.contains(node);
}

Program lower(const Graph& graph, std::span<const NodeId> order, const BufferAssignment& buffers,
              const LowerOptions& options, std::span<const NodeWait> waits) {
  if (order.size() != graph.nodes().size())
    throw Error(fmt::format("the list order has {} nodes, the graph {}", order.size(), graph.nodes().size()));
  return Lowering(graph, order, buffers, options, waits).take();
}

}  // namespace tandem::engine
