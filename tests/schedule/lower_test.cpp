// Graphs as instructions: where the outputs of a node lie, and what becomes of nodes that need no
// instruction.
#include <numeric>

#include <gtest/gtest.h>

#include <tandem/core/graph/graph_ops.h>
#include <tandem/core/schedule/lower.h>
#include <tandem/core/schedule/verify.h>
#include <tandem/memory/buffer_assignment.h>
#include <tandem/memory/placement.h>
#include <tandem/ops/collective.h>
#include <tandem/ops/kernels.h>
#include <tandem/ops/pointwise.h>

#include "expect_error.h"

namespace tandem::testing {
using namespace engine;
namespace {

const TensorType kType{DType::f32, {4}};

Program lowered(const Graph& g) {
  std::vector<NodeId> order(g.nodes().size());
  std::iota(order.begin(), order.end(), 0);
  LowerOptions options;
  options.kernels = &cpu_kernels();
  Program p = planned(lower(g, order, assign_buffers(g, order), options));
  verify(p);
  return p;
}

// A graph that assigns `op` of an input to state `w`.
Graph assigning(OpPtr op, std::int64_t channel) {
  Graph g;
  const StateId w = g.add_state({"w", kType});
  const ValueId x = g.node(g.add(std::make_shared<InputOp>("x", kType, false), {}, {})).outputs[0];
  Tag tag;
  tag.channel = channel;
  const ValueId y = g.node(g.add(std::move(op), {x}, tag)).outputs[0];
  g.add(std::make_shared<AssignOp>(w), {y}, {});
  return g;
}

std::vector<std::string> writers(const Program& p, const std::string& path) {
  std::vector<std::string> names;
  for (const Instruction& s : p.instructions)
    for (MemberId m : s.writes)
      if (p.block(p.member(m).block).name == path) names.emplace_back(s.op->name());
  return names;
}

TEST(Lower, AnAssignedValueIsComputedInTheState) {
  const Program p = lowered(
      assigning(std::make_shared<PointwiseOp>(
                    PointwiseExpression{{PointwiseCode::input, 0}, {PointwiseCode::relu, 0}}, DType::f32),
                -1));
  EXPECT_EQ(writers(p, "w"), (std::vector<std::string>{"pointwise"}));
}

TEST(Lower, AStateThatIsAssignedTwiceIsRefused) {
  Graph g = assigning(std::make_shared<AllReduceOp>(2), 0);
  const ValueId y = g.node(NodeId(1)).outputs[0];
  g.add(std::make_shared<AssignOp>(g.find_state("w")), {y}, {});
  expect_error([&] { lowered(g); }, {"'w'", "assigned twice"});
}

// The value lies next to the other values of its group, so a copy brings it to the state.
TEST(Lower, AReducedValueIsCopiedToTheState) {
  const Program p = lowered(assigning(std::make_shared<AllReduceOp>(2), 0));
  EXPECT_EQ(writers(p, "w"), (std::vector<std::string>{"assign"}));
}

}  // namespace
}  // namespace tandem::testing
