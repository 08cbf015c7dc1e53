#include <tandem/memory/swap.h>

#include <tandem/core/graph_edit.h>
#include <tandem/memory/activations.h>
#include <tandem/ops/copy.h>

namespace tandem {

Graph insert_swaps(const Graph& g, const std::vector<ValueId>& values) {
  GraphEdit edit(g);
  const auto readers = g.readers();
  for (ValueId v : values) {
    const auto users = backward_readers(g, readers, v);
    Tag made = g.node(g.value(v).producer).tag;
    made.channel = -1;  // of the transfer that brought it, if one did
    const ValueId kept = edit.add1(std::make_shared<CopyOut>(), {v}, made);
    Tag tag = g.node(users.front()).tag;
    tag.path = made.path;
    const ValueId back = edit.add1(std::make_shared<CopyIn>(), {kept}, tag);
    for (NodeId r : users) edit.rewire(r, v, back);
  }
  return edit.finish();
}

Program with_copy_waits(Program p, int release_distance) {
  const auto kind = [&](StepId s) { return p.lane_of(s).kind; };
  const auto device = [&](StepId s) { return p.lane_of(s).device; };
  const auto count = static_cast<StepId>(p.steps.size());
  // Steps in whose sequence the copy stands: of its lag, on the lane that made or will use the value.
  const auto beside = [&](StepId c, StepId copy) {
    const Step &step = p.step(c), &of = p.step(copy);
    return kind(c) == LaneKind::compute && device(c) == device(copy) && p.lane_of(c).index == of.tag.lane &&
           step.lag == of.lag;
  };
  for (StepId s = 0; s < count; ++s) {
    if (kind(s) == LaneKind::copy_out) {
      int passed = 0;
      for (StepId c = s + 1; c < count; ++c)
        if (beside(c, s) && ++passed == release_distance) {
          p.step(c).waits.push_back({s, 0});
          break;
        }
    } else if (kind(s) == LaneKind::copy_in) {
      for (StepId c = s; c-- > 0;)
        if (beside(c, s)) {
          p.step(s).waits.push_back({c, 0});
          break;
        }
    }
  }
  return p;
}

}  // namespace tandem
