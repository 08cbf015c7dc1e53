// Where list order puts a node: as its lane and phase say, or where a pass says with Tag::at.
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/core/graph/graph_ops.h>
#include <tandem/core/graph/trace.h>
#include <tandem/ops/collective.h>
#include <tandem/ops/copy.h>
#include <tandem/ops/matmul.h>
#include <tandem/ops/pointwise.h>
#include <tandem/ops/reduce.h>
#include <tandem/ops/shape.h>
#include <tandem/plan/build.h>
#include <tandem/plan/list_order.h>

namespace tandem::testing {
using namespace engine;
namespace {

using Names = std::vector<std::string>;

const std::vector<Task> kTasks{
    {Phase::forward, 0, 0}, {Phase::forward, 1, 0}, {Phase::backward, 0, 0}, {Phase::update, 0, 0}};

// Names the node that comes next, in one of the tasks above. Tests compare the names.
void next(const char* name, Phase phase = Phase::forward, Position position = {}) {
  Trace::current()->set_tag(tag_of(phase, name).at(position));
}

// Returns the names of the nodes that `make` makes of a tensor, in list order.
Names listed(const std::function<void(const Tensor&)>& make) {
  Graph graph;
  Trace trace(graph);
  const Tensor x = trace.input("x", {DType::f32, {4}});
  make(x);
  Names names;
  for (const NodeId n : list_order(graph, kTasks, /*large_gradients_last=*/true))
    if (!as<InputOp>(graph.node(n))) names.push_back(graph.node(n).tag.path);
  return names;
}

// The chain a, b, c, d, and the node "extra". Extra is made first and read by d.
Names around_chain(Position extra) {
  return listed([&](const Tensor& x) {
    next("extra", Phase::forward, extra);
    const Tensor y = tanh(x);
    Tensor h = x;
    for (const char* name : {"a", "b", "c"}) {
      next(name);
      h = tanh(h);
    }
    next("d");
    mul(h, y);
  });
}

TEST(ListOrder, ANodeIsListedWhereItsTagSays) {
  EXPECT_EQ(around_chain({}), (Names{"extra", "a", "b", "c", "d"}));
  EXPECT_EQ(around_chain({Anchor::itself}), (Names{"extra", "a", "b", "c", "d"}));
  EXPECT_EQ(around_chain({Anchor::first_reader}), (Names{"a", "b", "c", "extra", "d"}));
  EXPECT_EQ(around_chain({Anchor::first_reader, 2}), (Names{"a", "b", "extra", "c", "d"}));
  EXPECT_EQ(around_chain({Anchor::first_reader, 100}), (Names{"extra", "a", "b", "c", "d"}));
}

TEST(ListOrder, LastInputComesBeforeTheNodesThatFollowTheInput) {
  const auto order = [](Position extra) {
    return listed([&](const Tensor& x) {
      next("a");
      const Tensor a = tanh(x);
      next("b");
      const Tensor b = tanh(a);
      next("extra", Phase::forward, extra);
      const Tensor e = tanh(a);
      next("c");
      mul(b, e);
    });
  };
  EXPECT_EQ(order({}), (Names{"a", "b", "extra", "c"}));
  EXPECT_EQ(order({Anchor::last_input}), (Names{"a", "extra", "b", "c"}));
}

TEST(ListOrder, CollectivesAndCopyOutsFollowTheirInputUnlessToldToStay) {
  using Op = std::function<Tensor(const Tensor&)>;
  for (const Op& op : {Op([](const Tensor& t) { return all_reduce({t}, 2)[0]; }), Op(copy_out)}) {
    const auto order = [&](Position position) {
      return listed([&](const Tensor& x) {
        next("a");
        const Tensor a = tanh(x);
        next("b");
        tanh(a);
        next("op", Phase::forward, position);
        op(a);
      });
    };
    EXPECT_EQ(order({}), (Names{"a", "op", "b"}));
    EXPECT_EQ(order({Anchor::itself}), (Names{"a", "b", "op"}));
  }
}

TEST(ListOrder, ACopyInPrecedesItsReaderUnlessToldToStay) {
  const auto order = [](Position position) {
    return listed([&](const Tensor& x) {
      next("out");
      const Tensor kept = copy_out(x);
      next("in", Phase::forward, position);
      const Tensor back = copy_in(kept);
      next("a");
      const Tensor a = tanh(x);
      next("b");
      mul(a, back);
    });
  };
  EXPECT_EQ(order({}), (Names{"out", "a", "in", "b"}));
  EXPECT_EQ(order({Anchor::itself}), (Names{"out", "in", "a", "b"}));
}

TEST(ListOrder, ATransferFollowsTheValueUnlessToldToStay) {
  const auto order = [](Position position) {
    return listed([&](const Tensor& x) {
      next("a");
      const Tensor a = tanh(x);
      next("b");
      tanh(a);
      Trace::current()->set_tag(tag_of(Phase::forward, "send").on_channel(1).at(position));
      send(a, 1);
      Trace::current()->set_tag(tag_of(Phase::forward, "receive", /*stage=*/1).on_channel(1).at(position));
      const Tensor received = receive(0, {DType::f32, {4}});
      Trace::current()->set_tag(tag_of(Phase::forward, "c", /*stage=*/1));
      tanh(received);
    });
  };
  EXPECT_EQ(order({}), (Names{"a", "send", "receive", "b", "c"}));
  EXPECT_EQ(order({Anchor::itself}), (Names{"a", "b", "send", "receive", "c"}));
}

TEST(ListOrder, AnUpdateFollowsItsGradientUnlessToldToStay) {
  const auto order = [](Position position) {
    return listed([&](const Tensor& x) {
      next("gradient", Phase::backward);
      const Tensor gradient = tanh(x);
      next("other", Phase::backward);
      tanh(x);
      next("update", Phase::update, position);
      tanh(gradient);
    });
  };
  EXPECT_EQ(order({}), (Names{"gradient", "update", "other"}));
  EXPECT_EQ(order({Anchor::itself}), (Names{"gradient", "other", "update"}));
}

TEST(ListOrder, ALargeGradientComesLastUnlessToldToStay) {
  const auto order = [](Position position) {
    return listed([&](const Tensor& x) {
      next("gradient", Phase::backward, position);
      const Tensor gradient = broadcast_to(x, {64, 4});
      next("other", Phase::backward);
      tanh(x);
      next("update", Phase::update);
      tanh(gradient);
    });
  };
  EXPECT_EQ(order({}), (Names{"other", "gradient", "update"}));
  EXPECT_EQ(order({Anchor::itself}), (Names{"gradient", "update", "other"}));
}

// A reader in another task is no anchor for a pass's position, or nodes would leave their tasks.
TEST(ListOrder, APositionStaysWithinItsTask) {
  const Names order = listed([&](const Tensor& x) {
    next("extra", Phase::forward, {Anchor::first_reader});
    const Tensor extra = tanh(x);
    next("a");
    tanh(x);
    next("b", Phase::backward);
    tanh(extra);
  });
  EXPECT_EQ(order, (Names{"extra", "a", "b"}));
}

// Passes write the graph again, merge its nodes and derive others from them.
TEST(ListOrder, PassesKeepAPositionAndGiveItToNoOtherNode) {
  Graph forward;
  {
    Trace trace(forward);
    const Tensor x = trace.input("x", {DType::f32, {4, 4}});
    next("first");
    const StateId w = forward.add_state({.path = "w", .type = {DType::f32, {4, 4}}, .trained = true});
    const Tensor a = tanh(matmul(x, trace.read(w)));
    next("extra", Phase::forward, {Anchor::first_reader});
    const Tensor extra = exp(a);
    next("second");
    const Tensor b = matmul(tanh(a), extra);
    next("loss");
    trace.result("loss", mean(b));
  }
  const Strategy strategies[] = {{},
                                 {.train = false},
                                 {.models = 2},
                                 {.replicas = 2, .microbatches = 2},
                                 {.recompute = {"extra"}},
                                 {.swap = {"extra"}},
                                 {.amp = DType::bf16},
                                 {.microbatches = 4, .stages = 2, .schedule = "1f1b", .cuts = {"second"}}};
  for (const Strategy& strategy : strategies) {
    int positions = 0;
    const Graph planned = planned_graph(forward, strategy);
    for (const Node& n : planned.nodes()) {
      if (n.tag.position.anchor == Anchor::of_lane || n.op->lane() != LaneKind::compute) continue;
      ++positions;
      EXPECT_EQ(n.tag.path, "extra");
      EXPECT_EQ(n.tag.phase, Phase::forward);
    }
    EXPECT_EQ(positions, strategy.train ? strategy.microbatches : 1);
  }
}

TEST(Tag, OnlyItsOwnNodeHasAPosition) {
  const Tag tag = tag_of(Phase::forward, "a").at({Anchor::first_reader});
  for (const Tag& other : {tag.in_phase(Phase::backward), tag.named("b"), tag.on_channel(1),
                           tag.without_channel(), tag.without_rng()})
    EXPECT_EQ(other.position, Position{});
  for (const Tag& same : {tag.on_stage(1, 1), tag.of_microbatch(1), tag.timed(1, 1)})
    EXPECT_EQ(same.position, tag.position);
  EXPECT_FALSE(same_place(tag, tag.at({})));
}

}  // namespace
}  // namespace tandem::testing
