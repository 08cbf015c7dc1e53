#include <tandem/memory/swap.h>

#include <tandem/core/graph/graph_edit.h>
#include <tandem/memory/activations.h>
#include <tandem/ops/copy.h>

namespace tandem::engine {
namespace {

constexpr int kCopiedInAhead = 3;  // nodes before the first reader: the copy runs beside them

}  // namespace

Graph insert_swaps(Graph g, const std::vector<ValueId>& values) {
  if (values.empty()) return g;
  GraphEdit edit(g);
  const auto readers = g.readers();
  for (ValueId v : values) {
    const auto users = backward_readers(g, readers, v);
    const Tag made = g.producer(v).tag.without_channel();
    const ValueId kept = edit.add1(std::make_shared<CopyOutOp>(), {v}, made);
    const Tag used = g.node(users.front()).tag.named(made.path);
    const ValueId back =
        edit.add1(std::make_shared<CopyInOp>(), {kept}, used.at({Anchor::first_reader, kCopiedInAhead}));
    for (NodeId r : users) edit.rewire(r, v, back);
  }
  return edit.finish();
}

Program with_copy_waits(Program p, int release_distance) {
  const auto kind = [&](InstructionId s) { return p.lane_of(s).kind; };
  const auto device = [&](InstructionId s) { return p.lane_of(s).device; };
  // Compute instructions of the copy's lag, on the lane that made or will use the value.
  const auto beside = [&](InstructionId c, InstructionId copy) {
    const Instruction &instruction = p.instruction(c), &of = p.instruction(copy);
    return kind(c) == LaneKind::compute && device(c) == device(copy) && p.lane_of(c).index == of.tag.lane &&
           instruction.lag == of.lag;
  };
  for (const InstructionId s : p.instructions.ids()) {
    if (kind(s) == LaneKind::copy_out) {
      int passed = 0;
      for (InstructionId c = s + 1; p.instructions.contains(c) && passed < release_distance; ++c)
        if (beside(c, s) && ++passed == release_distance) p.instruction(c).waits.push_back({s, 0});
    } else if (kind(s) == LaneKind::copy_in) {
      InstructionId c = s - 1;
      while (c >= 0 && !beside(c, s)) c--;
      if (c >= 0) p.instruction(s).waits.push_back({c, 0});
    }
  }
  return p;
}

}  // namespace tandem::engine
