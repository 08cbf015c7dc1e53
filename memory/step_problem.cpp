#include <tandem/memory/step_problem.h>

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include <tandem/core/base/contains.h>
#include <tandem/core/base/error.h>
#include <tandem/core/base/memory.h>
#include <tandem/core/base/units.h>
#include <tandem/core/graph/graph_ops.h>
#include <tandem/core/graph/graph_rewrite.h>
#include <tandem/core/schedule/accesses.h>
#include <tandem/core/schedule/happens_before.h>
#include <tandem/ops/copy.h>

namespace tandem::engine {
namespace {

using Kind = MemoryValue::Kind;

// The place of an instruction in a problem.
struct Place {
  int graph = -1, node = -1;
};

class ProblemMaker {
 public:
  ProblemMaker(const ListedGraph& step, const BufferAssignment& buffers, const Program& program, int device,
               const CopyLink& link)
      : g_(step.graph), p_(program), device_(device), order_(program), place_(program.instructions.size()) {
    IdVector<InstructionId, NodeId> nodes;
    for (const NodeId n : step.order)
      if (has_instruction(g_, n, buffers)) nodes.push_back(n);
    made_.problem.link = link;
    made_.problem.static_bytes = program.memory[static_cast<std::size_t>(device)].state;
    add_nodes(nodes);
    const auto accesses = accesses_by_block(p_);
    find_assigned_states(accesses);
    for (const BlockId b : p_.blocks.ids())
      if (p_.block(b).device == device && !accesses[b].empty()) add_block(b, accesses[b]);
    for (const InstructionId s : p_.instructions.ids())
      if (is_here(s) && p_.instruction(s).tag.phase == Phase::forward && !can_repeat(s))
        node(place_[s]).outputs.push_back(add_value(0, Kind::gradient, -1));
  }
  StepProblem take() { return std::move(made_); }

 private:
  bool is_here(InstructionId s) const { return p_.lane_of(s).device == device_; }
  bool computes(InstructionId s) const { return p_.lane_of(s).kind == LaneKind::compute; }
  MemoryNode& node(const Place& place) {
    return made_.problem.graphs[static_cast<std::size_t>(place.graph)]
        .nodes[static_cast<std::size_t>(place.node)];
  }
  NodeId graph_node(const Place& place) const {
    return made_.nodes[static_cast<std::size_t>(place.graph)][static_cast<std::size_t>(place.node)];
  }

  // A ring works on two batches at once: its first array's forward is a batch ahead.
  void add_nodes(const IdVector<InstructionId, NodeId>& nodes) {
    int arrays = 1;
    for (const Instruction& s : p_.instructions) arrays = std::max(arrays, s.tag.array + 1);
    const bool is_ring = p_.max_lag == 1 && arrays > 1;
    if (p_.max_lag > 0 && !is_ring)
      throw Error(
          "a memory plan is of one batch, and this schedule works on several at once: use one that flushes "
          "(gpipe, 1f1b)");
    if (std::ranges::count_if(
            p_.lanes, [&](const Lane& l) { return l.device == device_ && l.kind == LaneKind::compute; }) > 1)
      throw Error("a memory plan is of one compute lane: arrays side by side have none");
    for (int graph = 0; graph < (is_ring ? arrays : 1); ++graph) {
      made_.problem.graphs.push_back(
          {is_ring ? fmt::format("array {}", graph) : fmt::format("device {}", device_), {}});
      made_.nodes.emplace_back();
      for (const bool forward : {true, false})  // a ring's first array begins with its backward
        for (const InstructionId s : p_.instructions.ids()) {
          const bool is_forward = p_.instruction(s).tag.phase == Phase::forward;
          if (is_here(s) && (!is_ring || p_.instruction(s).tag.array == graph) &&
              (is_ring ? is_forward == forward : forward))
            add_node(graph, s, nodes[s]);
        }
    }
  }

  void add_node(int graph, InstructionId s, NodeId n) {
    const Instruction& instruction = p_.instruction(s);
    auto& nodes = made_.problem.graphs[static_cast<std::size_t>(graph)].nodes;
    place_[s] = {graph, static_cast<int>(nodes.size())};
    if (computes(s)) last_compute_ = s;
    made_.nodes[static_cast<std::size_t>(graph)].push_back(n);
    const double ms = computes(s) ? instruction.cost.seconds * kMsPerSecond : 0;
    nodes.push_back({instruction.name, instruction.tag.phase, ms, 0, {}, {}});
  }

  int add_value(std::int64_t bytes, Kind kind, ValueId value) {
    const auto id = static_cast<std::int64_t>(made_.problem.values.size());
    made_.problem.values.push_back({id, bytes, kind});
    made_.values.push_back(value);
    return static_cast<int>(id);
  }

  // States that are assigned before the updates: what reads them cannot be repeated later.
  void find_assigned_states(const IdVector<BlockId, std::vector<Access>>& accesses) {
    assigned_early_.assign(p_.blocks.size(), false);
    for (const BlockId b : p_.blocks.ids())
      for (const Access& a : accesses[b])
        if (a.write && p_.block(b).arena == Arena::state &&
            p_.instruction(a.instruction).tag.phase != Phase::update)
          assigned_early_[b] = true;
  }

  bool can_repeat(InstructionId s) const {
    const Instruction& instruction = p_.instruction(s);
    const auto is_state = [&](MemberId m) { return p_.block_of(m).arena == Arena::state; };
    return computes(s) && !as<InputOp>(instruction) && !instruction.outputs.empty() &&
           std::ranges::none_of(instruction.writes, is_state) &&
           std::ranges::none_of(instruction.reads,
                                [&](MemberId m) { return assigned_early_[p_.member(m).block]; });
  }

  void add_block(BlockId b, const std::vector<Access>& accesses) {
    if (p_.block(b).arena == Arena::state) return add_state(p_.block(b), accesses);
    const std::int64_t bytes = align_up(p_.block(b).bytes);
    const Access* first = nullptr;
    std::set<InstructionId> writers;
    for (const Access& a : accesses) {
      if (a.write) writers.insert(a.instruction);
      if (a.write && (!first || earlier(a, *first))) first = &a;
    }
    const Instruction& maker = p_.instruction(first->instruction);
    if (accesses.size() == 1 && maker.workspace() == first->member) {
      node(place_[first->instruction]).workspace_bytes += bytes;
      return;
    }
    const bool moves = writers.size() == 1 && maker.tag.phase == Phase::forward && !as<AssignOp>(maker);
    const ValueId value = moves ? value_of(*first) : ValueId(-1);
    const int v = add_value(bytes, value >= 0 ? Kind::intermediate : Kind::gradient, value);
    node(place_[first->instruction]).outputs.push_back(v);
    for (const Access& a : accesses) {
      if (a.instruction != first->instruction) add_input(place_[a.instruction], v);
      if (const InstructionId last = last_before_known(a.instruction); last > first->instruction)
        add_input(place_[last], v);
    }
  }

  // Each array has its own part of a state.
  void add_state(const MemoryBlock& block, const std::vector<Access>& accesses) {
    std::map<std::int64_t, int> parts;  // by offset
    for (const Access& a : accesses) {
      const auto [part, fresh] = parts.try_emplace(p_.member(a.member).offset, -1);
      if (fresh) part->second = add_value(align_up(block.bytes), Kind::parameter, -1);
      add_input(place_[a.instruction], part->second);
    }
  }

  // The value of the graph that an access makes.
  ValueId value_of(const Access& write) const {
    const Node& n = g_.node(graph_node(place_[write.instruction]));
    const auto& writes = p_.instruction(write.instruction).writes;
    const auto output = static_cast<std::size_t>(std::ranges::find(writes, write.member) - writes.begin());
    return output < n.outputs.size() ? n.outputs[output] : ValueId(-1);
  }

  void add_input(const Place& place, int v) {
    auto& inputs = node(place).inputs;
    if (!contains(inputs, v)) inputs.push_back(v);
  }

  // A use on another lane lasts until the compute lane has waited for it: returns the last instruction
  // before.
  InstructionId last_before_known(InstructionId s) const {
    if (computes(s)) return -1;
    const std::int64_t known = order_.first_after(s, p_.lane_id(last_compute_));
    InstructionId last = s;
    for (InstructionId later = s; p_.instructions.contains(later) && later < known; ++later)
      if (is_here(later)) last = later;
    return last;
  }

  const Graph& g_;
  const Program& p_;
  int device_;
  HappensBefore order_;
  IdVector<InstructionId, Place> place_;
  InstructionId last_compute_ = -1;
  IdVector<BlockId, bool> assigned_early_;
  StepProblem made_;
};

// Writes the graph again, as the plans say.
class Applying {
 public:
  Applying(const ListedGraph& step, std::span<const StepProblem> problems, std::span<const MemoryPlan> plans)
      : step_(step), g_(step.graph), now_(step.graph.values().size(), -1) {
    made_.graph = with_states_of(g_);
    for (const NodeId n : g_.nodes().ids())
      if (as<AssignOp>(g_.node(n))) assigns_[g_.node(n).inputs[0]].push_back(n);
    for (std::size_t d = 0; d < plans.size(); ++d) {
      devices_.push_back({&problems[d], &plans[d], std::vector<Copies>(problems[d].values.size())});
      for (const auto& nodes : problems[d].nodes)
        for (const NodeId n : nodes) device_of_[n] = d;
    }
    put_steps_in_order();
    find_steps_ahead();
    for (const bool ahead : {true, false})  // the values of the batch ahead are read in the next unit
      for (ListedStep& s : steps_)
        if (s.is_ahead == ahead) write_step(s);
    add_waits();
    set_order();
  }
  ListedGraph take() { return std::move(made_); }

 private:
  struct Copies {
    NodeId last = -1;      // copy of the value
    ValueId on_host = -1;  // what its last copy to the host made
  };
  struct Device {
    const StepProblem* problem;
    const MemoryPlan* plan;
    std::vector<Copies> copies;
    std::size_t next = 0;  // step of the plan that is not in order yet
  };
  struct ListedStep {
    std::size_t device;
    MemoryStep step;
    bool is_ahead = false;  // of a ring's first array: works on the batch that enters
    NodeId made = -1;       // the node that carries it out; of a wait, the copy
  };

  NodeId node_of(const ListedStep& s) const {
    return devices_[s.device]
        .problem->nodes[static_cast<std::size_t>(s.step.graph)][static_cast<std::size_t>(s.step.node)];
  }
  bool is_ring() const { return devices_[0].problem->problem.is_ring(); }

  // One device follows its plan. Several run their nodes in the order of the step, each with what its plan
  // has before.
  void put_steps_in_order() {
    const auto take = [&](std::size_t d) -> const ListedStep& {
      steps_.push_back({d, devices_[d].plan->steps[devices_[d].next++]});
      return steps_.back();
    };
    if (devices_.size() > 1)
      for (const NodeId n : step_.order) {
        const auto found = device_of_.find(n);
        if (found == device_of_.end()) continue;
        for (bool done = false; !done;) {
          const ListedStep& s = take(found->second);
          done = s.step.kind == MemoryStep::Kind::run && node_of(s) == n;
        }
      }
    for (std::size_t d = 0; d < devices_.size(); ++d)
      while (devices_[d].next < devices_[d].plan->steps.size()) take(d);
  }

  // Of a ring's first array, the forward nodes of this unit work a batch ahead, and so do copies and repeats
  // of what they have made in this unit.
  void find_steps_ahead() {
    if (!is_ring()) return;
    const MemoryProblem& p = devices_[0].problem->problem;
    std::vector<bool> ran(p.graphs[0].nodes.size()), made(p.values.size());
    for (ListedStep& s : steps_) {
      if (s.step.node < 0) {
        s.is_ahead = made[static_cast<std::size_t>(s.step.value)];
        continue;
      }
      const auto n = static_cast<std::size_t>(s.step.node);
      if (s.step.graph != 0 || p.graphs[0].nodes[n].phase != Phase::forward) continue;
      if (s.step.kind == MemoryStep::Kind::run) {
        ran[n] = true;
        for (const int v : p.graphs[0].nodes[n].outputs) made[static_cast<std::size_t>(v)] = true;
      }
      s.is_ahead = ran[n];
    }
  }

  void write_step(ListedStep& s) {
    switch (s.step.kind) {
      case MemoryStep::Kind::alloc:
      case MemoryStep::Kind::free: break;  // the placement derives lifetimes from the uses
      case MemoryStep::Kind::run:
      case MemoryStep::Kind::recompute: compute(s); break;
      case MemoryStep::Kind::d2h:
      case MemoryStep::Kind::h2d: copy(s); break;
      case MemoryStep::Kind::wait: s.made = copies_of(s).last; break;
    }
  }
  Copies& copies_of(const ListedStep& s) {
    return devices_[s.device].copies[static_cast<std::size_t>(s.step.value)];
  }

  Tag timed(const Tag& tag, const ListedStep& s) const {
    return tag.timed(is_ring() && !s.is_ahead ? 1 : 0, tag.lane);
  }

  void compute(ListedStep& s) {
    const Node& n = g_.node(node_of(s));
    const bool again = s.step.kind == MemoryStep::Kind::recompute;
    s.made = write(n, again ? timed(n.tag.in_phase(Phase::backward).without_channel(), s) : n.tag);
    for (std::size_t o = 0; o < n.outputs.size(); ++o)
      if (again || step_.keep.contains(n.outputs[o])) made_.keep.insert(now_[n.outputs[o]]);
    if (again) return;
    for (const ValueId v : n.outputs)  // assigns in place have no instruction of their own
      if (const auto found = assigns_.find(v); found != assigns_.end())
        for (const NodeId assign : found->second)
          if (!device_of_.contains(assign)) write(g_.node(assign), g_.node(assign).tag);
  }

  void copy(ListedStep& s) {
    Copies& copies = copies_of(s);
    const StepProblem& problem = *devices_[s.device].problem;
    const ValueId v = problem.values[static_cast<std::size_t>(s.step.value)];
    const CopyLink& link = problem.problem.link;
    const Tag tag = timed(g_.producer(v).tag.without_channel().without_rng(), s);
    if (s.step.kind == MemoryStep::Kind::d2h) {
      s.made = made_.graph.add(std::make_shared<CopyOutOp>(link), {now_[v]}, tag);
      copies.on_host = made_.graph.node(s.made).outputs[0];
    } else {
      s.made =
          made_.graph.add(std::make_shared<CopyInOp>(link), {copies.on_host}, tag.in_phase(Phase::backward));
      now_[v] = made_.graph.node(s.made).outputs[0];
      made_.keep.insert(now_[v]);
    }
    copies.last = s.made;
  }

  NodeId write(const Node& n, Tag tag) {
    std::vector<ValueId> inputs;
    for (const ValueId v : n.inputs) inputs.push_back(current(v));
    const NodeId made = made_.graph.add(n.op, std::move(inputs), std::move(tag));
    for (std::size_t o = 0; o < n.outputs.size(); ++o) now_[n.outputs[o]] = made_.graph.node(made).outputs[o];
    return made;
  }

  // The value that stands for v now. Reads are written where they are used first, views for each version of
  // what they show.
  ValueId current(ValueId v) {
    const Node& maker = g_.producer(v);
    if (as<ReadOp>(maker)) {
      if (now_[v] < 0) write(maker, maker.tag);
    } else if (const auto source = view_of(g_, maker)) {
      const ValueId shown = current(*source);
      if (const auto [view, fresh] = views_.try_emplace({v, shown}, -1); fresh) {
        write(maker, maker.tag);
        view->second = now_[v];
      }
      return views_.at({v, shown});
    }
    return now_[v];
  }

  // The compute lane waits where the plan does. A copy begins when the compute lane has come to it.
  void add_waits() {
    for (std::size_t d = 0; d < devices_.size(); ++d) {
      NodeId first_compute = -1, last_compute = -1;
      std::vector<NodeId> awaited;  // copies that the compute lane waits for before it goes on
      std::vector<NodeId> early;    // what comes before all computation, and so after that of the unit before
      for (const ListedStep& s : steps_) {
        if (s.device != d || s.made < 0) continue;
        if (s.step.kind == MemoryStep::Kind::wait) {
          awaited.push_back(s.made);
          continue;
        }
        const LaneKind lane = made_.graph.node(s.made).op->lane();
        if (lane == LaneKind::send || lane == LaneKind::collective || lane == LaneKind::timer) continue;
        for (const NodeId copy : awaited) made_.waits.push_back({s.made, copy});
        if (lane == LaneKind::compute) {
          awaited.clear();
          last_compute = s.made;
          if (first_compute < 0) first_compute = s.made;
        } else if (lane != LaneKind::receive) {
          if (last_compute >= 0)
            made_.waits.push_back({s.made, last_compute});
          else
            early.push_back(s.made);
        }
      }
      if (first_compute < 0) continue;
      for (const NodeId n : early) made_.waits.push_back({n, last_compute, 1});
      early.push_back(first_compute);
      for (const NodeId n : early)
        for (const NodeId copy : awaited) made_.waits.push_back({n, copy, 1});
    }
  }

  // First what has no instruction, then the steps.
  void set_order() {
    IdVector<NodeId, bool> is_step(made_.graph.nodes().size(), false);
    const auto makes = [](const ListedStep& s) {
      return s.made >= 0 && s.step.kind != MemoryStep::Kind::wait;
    };
    for (const ListedStep& s : steps_)
      if (makes(s)) is_step[s.made] = true;
    for (const NodeId n : made_.graph.nodes().ids())
      if (!is_step[n]) made_.order.push_back(n);
    for (const ListedStep& s : steps_)
      if (makes(s)) made_.order.push_back(s.made);
  }

  const ListedGraph& step_;
  const Graph& g_;
  IdVector<ValueId, ValueId> now_;  // per value of the original
  std::map<std::pair<ValueId, ValueId>, ValueId> views_;
  std::map<ValueId, std::vector<NodeId>> assigns_;  // by value
  std::vector<Device> devices_;
  std::map<NodeId, std::size_t> device_of_;
  std::vector<ListedStep> steps_;  // in list order
  ListedGraph made_;
};

}  // namespace

std::set<ValueId> movable_values(const Graph& graph) {
  std::set<ValueId> values;
  for (const Node& n : graph.nodes())
    if (n.tag.phase == Phase::forward && !as<ReadOp>(n)) values.insert(n.outputs.begin(), n.outputs.end());
  return values;
}

StepProblem step_problem(const ListedGraph& step, const BufferAssignment& buffers, const Program& program,
                         int device, const CopyLink& link) {
  return ProblemMaker(step, buffers, program, device, link).take();
}

ListedGraph apply_memory_plans(const ListedGraph& step, std::span<const StepProblem> problems,
                               std::span<const MemoryPlan> plans) {
  return Applying(step, problems, plans).take();
}

}  // namespace tandem::engine
