// Where list order puts a node whose tag names a position.
#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/core/graph/trace.h>
#include <tandem/ops/pointwise.h>
#include <tandem/ops/reduce.h>
#include <tandem/plan/build.h>
#include <tandem/plan/list_order.h>

namespace tandem::testing {
using namespace engine;
namespace {

using Names = std::vector<std::string>;

// The chain a, b, c, d of nodes that compute, and the node "extra". Extra is made first and read by d.
Graph chain(Position extra) {
  Graph graph;
  Trace trace(graph);
  const Tensor x = trace.input("x", {DType::f32, {4}}), weight = trace.input("weight", {DType::f32, {4}});
  trace.set_tag(tag_of(Phase::forward, "extra").at(extra));
  const Tensor y = tanh(weight);
  Tensor h = x;
  for (const char* name : {"a", "b", "c", "d"}) {
    trace.set_tag(tag_of(Phase::forward, name));
    h = name == std::string("d") ? mul(h, y) : tanh(h);
  }
  trace.set_tag(tag_of(Phase::forward, "loss"));
  trace.result("loss", mean(h));
  return graph;
}

// The paths of the nodes that compute, in list order.
Names listed(const Graph& graph, const std::vector<Task>& tasks) {
  Names names;
  for (const NodeId n : list_order(graph, tasks, /*large_gradients_last=*/true)) {
    const Node& node = graph.node(n);
    if (!node.inputs.empty() && node.tag.path != "loss") names.push_back(node.tag.path);
  }
  return names;
}

Names listed(Position extra) { return listed(chain(extra), {{Phase::forward, 0, 0}}); }

TEST(ListOrder, ANodeIsListedWhereItsTagSays) {
  EXPECT_EQ(listed({}), (Names{"extra", "a", "b", "c", "d"}));
  EXPECT_EQ(listed({Anchor::itself}), (Names{"extra", "a", "b", "c", "d"}));
  EXPECT_EQ(listed({Anchor::first_reader}), (Names{"a", "b", "c", "extra", "d"}));
  EXPECT_EQ(listed({Anchor::first_reader, 2}), (Names{"a", "b", "extra", "c", "d"}));
  EXPECT_EQ(listed({Anchor::first_reader, 100}), (Names{"extra", "a", "b", "c", "d"}));
}

TEST(ListOrder, ANodeAfterItsInputsComesBeforeTheNodesThatFollow) {
  Graph graph;
  {
    Trace trace(graph);
    const auto named = [&](const char* path, Position position = {}) {
      trace.set_tag(tag_of(Phase::forward, path).at(position));
    };
    named("a");
    const Tensor a = tanh(trace.input("x", {DType::f32, {4}}));
    named("b");
    const Tensor b = tanh(a);
    named("extra", {Anchor::last_input});
    const Tensor extra = tanh(a);
    named("c");
    const Tensor c = mul(b, extra);
    named("loss");
    trace.result("loss", mean(c));
  }
  EXPECT_EQ(listed(graph, {{Phase::forward, 0, 0}}), (Names{"a", "extra", "b", "c"}));
}

// Passes write a graph again, and the numbers of its nodes change.
TEST(ListOrder, APositionStaysThroughAllPasses) {
  Strategy strategy;
  strategy.train = false;
  strategy.models = 2;
  strategy.fuse_pointwise = false;
  const auto order = [&](Position extra) {
    const Graph g = planned_graph(chain(extra), strategy);
    return listed(g, make_schedule(strategy.schedule, 1, 1).order);
  };
  EXPECT_EQ(order({}), (Names{"extra", "a", "b", "c", "d"}));
  EXPECT_EQ(order({Anchor::first_reader}), (Names{"a", "b", "c", "extra", "d"}));
}

}  // namespace
}  // namespace tandem::testing
