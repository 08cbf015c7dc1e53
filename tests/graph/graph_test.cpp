// The checks of a graph after every pass.
#include <functional>

#include <gtest/gtest.h>

#include <tandem/core/base/error.h>
#include <tandem/core/graph/graph.h>
#include <tandem/core/graph/graph_ops.h>
#include <tandem/core/graph/graph_rewrite.h>
#include <tandem/ops/pointwise.h>

#include "expect_error.h"

namespace tandem::testing {
using namespace engine;
namespace {

const TensorType kType{DType::f32, {4}}, kOther{DType::f32, {5}};

OpPtr relu_op() {
  return std::make_shared<PointwiseOp>(
      PointwiseExpression{{PointwiseCode::input, 0}, {PointwiseCode::relu, 0}}, DType::f32);
}

// A Graph's interface does not allow invalid changes.
Node& node(Graph& g, NodeId id) { return const_cast<Node&>(g.node(id)); }

// Applies `change` to the graph w ← relu(x).
void expect_refused(const std::string& words,
                    const std::function<void(Graph&, ValueId x, StateId w)>& change) {
  Graph g;
  const StateId w = g.add_state({"w", kType});
  const ValueId x = g.node(g.add(std::make_shared<InputOp>("x", kType, false), {}, {})).outputs[0];
  const ValueId y = g.node(g.add(relu_op(), {x}, {})).outputs[0];
  g.add(std::make_shared<AssignOp>(w), {y}, {});
  EXPECT_NO_THROW(verify(g));
  expect_error(
      [&] {
        change(g, x, w);
        verify(g);
      },
      {words});
}

TEST(VerifyGraph, FindsMistakesOfAPass) {
  expect_refused("before it is made", [](Graph& g, ValueId, StateId) { node(g, 1).inputs[0] = 1; });
  expect_refused("before it is made", [](Graph& g, ValueId, StateId) { node(g, 1).inputs[0] = 99; });
  expect_refused("not the one producer", [](Graph& g, ValueId x, StateId) { node(g, 1).outputs[0] = x; });
  expect_refused("not what infer gives", [](Graph& g, ValueId, StateId) {
    node(g, 1).op = std::make_shared<PointwiseOp>(PointwiseExpression{{PointwiseCode::input, 0}}, DType::f64);
  });
  expect_refused("unknown state",
                 [](Graph& g, ValueId x, StateId) { g.add(std::make_shared<AssignOp>(7), {x}, {}); });
  expect_refused("unknown state",
                 [](Graph& g, ValueId x, StateId) { g.add(std::make_shared<AssignOp>(-1), {x}, {}); });
  expect_refused("is f32[5], the value f32[4]", [](Graph& g, ValueId x, StateId) {
    const StateId v = g.add_state({"v", kOther});
    g.add(std::make_shared<AssignOp>(v), {x}, {});
  });
  expect_refused("does not exist or has another type",
                 [](Graph& g, ValueId, StateId w) { g.add(std::make_shared<ReadOp>(w, 1, kOther), {}, {}); });
  expect_refused("does not exist or has another type",
                 [](Graph& g, ValueId, StateId) { g.add(std::make_shared<ReadOp>(-1, 1, kType), {}, {}); });
}

// w ← relu(relu(x)) + a, where a is an argument.
TEST(GraphRewrite, RemovesReplacesAndKeepsNodes) {
  Graph g;
  const StateId w = g.add_state({.path = "w", .type = kType, .trained = true, .stage = 1});
  const ValueId x = g.node(g.add(std::make_shared<InputOp>("x", kType, false), {}, {})).outputs[0];
  const ValueId a = g.add_value(kType);
  const ValueId once = g.node(g.add(relu_op(), {x}, {.path = "once"})).outputs[0];
  const ValueId twice = g.node(g.add(relu_op(), {once}, {.path = "twice"})).outputs[0];
  const auto sum = std::make_shared<PointwiseOp>(
      PointwiseExpression{{PointwiseCode::input, 0}, {PointwiseCode::input, 1}, {PointwiseCode::add, 0, 1}},
      DType::f32);
  const ValueId y = g.node(g.add(sum, {twice, a}, {.path = "sum"})).outputs[0];
  g.add(std::make_shared<AssignOp>(w), {y}, {});

  GraphRewrite rewrite(g);
  EXPECT_THROW(rewrite.now(once), Error) << "the value is not written yet";
  for (const Node& n : g.nodes())
    n.tag.path == "twice" ? rewrite.replace(n.outputs[0], rewrite.now(n.inputs[0])) : rewrite.copy(n);
  const Graph written = rewrite.take();
  verify(written);
  EXPECT_EQ("w", written.state(w).path);
  EXPECT_EQ(1, written.state(w).stage);
  EXPECT_TRUE(written.state(w).trained);
  ASSERT_EQ(4u, written.nodes().size());
  const Node &relu = written.node(1), &added = written.node(2);
  EXPECT_EQ("once", relu.tag.path);
  ASSERT_EQ(2u, added.inputs.size());
  EXPECT_EQ(relu.outputs[0], added.inputs[0]);
  EXPECT_EQ(-1, written.value(added.inputs[1]).producer) << "an argument stays an argument";
  EXPECT_EQ(added.outputs, written.node(3).inputs);
}

}  // namespace
}  // namespace tandem::testing
