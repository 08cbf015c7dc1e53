// The ops that communicate, over ranks that are threads, and the copies to and from host memory.
#include <algorithm>
#include <atomic>

#include <gtest/gtest.h>

#include <tandem/core/base/error.h>
#include <tandem/core/base/memory.h>
#include <tandem/core/graph/trace.h>
#include <tandem/ops/collective.h>
#include <tandem/ops/copy.h>
#include <tandem/ops/kernels.h>

#include "expect_error.h"
#include "ranks.h"

namespace tandem::testing {
using namespace engine;
namespace {

RankContext context(Comm& comm, int replicas, int stages) {
  return {comm.rank(), comm.rank() / stages, replicas, comm.rank() % stages, stages, &comm, nullptr};
}

KernelPtr prepare(const Op& op, const Types& inputs, std::uint64_t channel) {
  static const Tag tag;
  return cpu_kernels().make({op, inputs, op.infer(inputs), tag, 1, 1, channel});
}

// Runs a kernel on the caller's memory.
void run(const Kernel& kernel, std::vector<const void*> in, std::vector<void*> out, const RankContext& rank) {
  kernel.run({in.data(), out.data(), nullptr, 0, &rank});
}

const Types kThree = {{DType::f32, {5}}, {DType::f32, {40, 50}}, {DType::f32, {3}}};

// Offsets for the values of kThree one after the other, as the planner places them.
struct Placed {
  Buffer memory;
  std::vector<float*> values;
  Placed() {
    std::int64_t bytes = 0;
    for (const TensorType& t : kThree) bytes += align_up(t.bytes());
    memory = Buffer(bytes);
    std::memset(memory.data(), 0, static_cast<std::size_t>(bytes));
    bytes = 0;
    for (const TensorType& t : kThree) {
      values.push_back(reinterpret_cast<float*>(memory.data() + bytes));
      bytes += align_up(t.bytes());
    }
  }
  void fill(int rank) {
    for (std::size_t i = 0; i < kThree.size(); ++i) {
      const auto v = values_of<float>(rank, kThree[i].elements(), run_seed() + i);
      std::copy(v.begin(), v.end(), values[i]);
    }
  }
  std::vector<float> at(std::size_t i) const { return {values[i], values[i] + kThree[i].elements()}; }
};

TEST(AllReduceOp, SumsEachStageOverItsReplicas) {
  constexpr int kReplicas = 3, kStages = 2;
  const AllReduceOp op(kReplicas);
  for (const bool in_place : {true, false})
    run_ranks(kReplicas * kStages, [&](Comm& comm) {
      const RankContext rank = context(comm, kReplicas, kStages);
      Placed from, to;
      from.fill(comm.rank());
      Placed& result = in_place ? from : to;
      const KernelPtr kernel = prepare(op, kThree, 11);
      const auto& in = from.values;
      const auto& out = result.values;
      run(*kernel, {in[0], in[1], in[2]}, {out[0], out[1], out[2]}, rank);
      std::vector<int> group;
      for (int replica = 0; replica < kReplicas; ++replica) group.push_back(replica * kStages + rank.device);
      for (std::size_t i = 0; i < kThree.size(); ++i)
        EXPECT_TRUE(same_bits(result.at(i), left_fold<float>(group, kThree[i].elements(), run_seed() + i)));
    });
}

TEST(AllReduceOp, RefusesValuesThatAreNotContiguous) {
  ThreadWorld world(2);
  const auto comm = world.comm(0);
  const RankContext rank = context(*comm, 2, 1);
  const KernelPtr kernel = prepare(AllReduceOp(2), kThree, 11);
  Placed a, b;
  const auto error = [&](std::vector<void*> at) {
    return message_of<Error>([&] { run(*kernel, {at[0], at[1], at[2]}, at, rank); });
  };
  EXPECT_NE(error({a.values[0], a.values[2], a.values[1]}).find("must be placed one after the other"),
            std::string::npos);
  EXPECT_NE(error({a.values[0], a.values[1], b.values[2]}).find("rank 0: values 1 and 2"), std::string::npos);
}

TEST(AllReduceOp, IsTheIdentityOnOneRankAndNeedsACommOnSeveral) {
  const Tensor x = Tensor::from({1, 2, 3}, {3});
  EXPECT_EQ(all_reduce({x, x}, 1)[1].values(), x.values());
  EXPECT_NE(message_of<Error>([&] { all_reduce({x}, 2); }).find("not distributed"), std::string::npos);
  EXPECT_NE(message_of<Error>([&] { all_reduce({}, 2); }).find("one value or more"), std::string::npos);
  EXPECT_NE(message_of<Error>([&] {
              all_reduce({x, Tensor::zeros({DType::f64, {1}})}, 2);
            }).find("one element type"),
            std::string::npos);
  EXPECT_NE(message_of<Error>([&] {
              all_reduce({Tensor::zeros({DType::bf16, {1}})}, 2);
            }).find("cast to f32"),
            std::string::npos);
  EXPECT_THROW(AllReduceOp(0), Error);
}

TEST(AllReduceOp, GradientsAreSummedOverTheSameRanksInOneGroup) {
  Graph graph;
  Trace trace(graph);
  const Tensors x = {trace.input("a", kThree[0]), trace.input("b", kThree[1]), trace.input("c", kThree[2])};
  const Tensors grads = {trace.input("ga", kThree[0]), Tensor(), trace.input("gc", kThree[2])};
  const AllReduceOp op(4);
  const Tensors y = all_reduce(x, 4);
  const Tensors dx = op.vjp({x, y, grads, {true, true, true}});
  ASSERT_EQ(dx.size(), 3u);
  EXPECT_FALSE(dx[1].defined()) << "without an incoming gradient there is none";
  const Node& node = graph.nodes().back();
  EXPECT_EQ(node.op->name(), "all_reduce");
  EXPECT_EQ(node.op->attributes(), "replicas=4");
  EXPECT_EQ(node.inputs, (std::vector<ValueId>{trace.value(grads[0]), trace.value(grads[2])}));
  EXPECT_EQ(trace.value(dx[2]), node.outputs[1]);
  const std::size_t nodes = graph.nodes().size();
  op.vjp({x, y, grads, {false, true, false}});
  EXPECT_EQ(graph.nodes().size(), nodes) << "an unneeded gradient is not reduced";
}

TEST(AllReduceOp, IsTheSameOpWithAModelAxis) {
  Graph graph;
  Trace trace(graph);
  const Tensors x = {trace.input("a", {DType::f32, {6, 5}}), trace.input("b", {DType::f32, {6}})};
  const AllReduceOp op(2);
  EXPECT_EQ(op.vmap({x, {true, true}, 6})[0].shape(), (Shape{6, 5}));
  EXPECT_THROW(op.vmap({x, {true, false}, 6}), NoRule);
  EXPECT_EQ(op.lane(), LaneKind::collective);
  const auto aliases = op.may_alias(kThree);
  ASSERT_EQ(aliases.size(), 3u);
  EXPECT_EQ(aliases[2].output, 2);
  EXPECT_EQ(aliases[2].input, 2);
  EXPECT_EQ(aliases[2].kind, Alias::in_place);
  EXPECT_EQ(op.cost(kThree, kThree).flops, 2008);
}

TEST(AllGatherOp, GivesEveryReplicaTheValuesOfAllInTheirOrder) {
  constexpr int kReplicas = 3, kStages = 2;
  const Types in = {{DType::i32, {2}}, {DType::f32, {2, 5}}, {DType::f32, {0}}};
  const Types out = AllGatherOp(kReplicas).infer(in);
  EXPECT_EQ((Shape{3, 2, 5}), out[1].shape);
  run_ranks(kReplicas * kStages, [&](Comm& comm) {
    const RankContext rank = context(comm, kReplicas, kStages);
    const std::vector<std::int32_t> ids{rank.rank, -rank.rank};
    const std::vector<float> rows = values_of<float>(rank.rank, 10, run_seed());
    std::vector<std::int32_t> all_ids(6);
    std::vector<float> all_rows(30);
    run(*prepare(AllGatherOp(kReplicas), in, 40), {ids.data(), rows.data(), nullptr},
        {all_ids.data(), all_rows.data(), nullptr}, rank);
    for (int replica = 0; replica < kReplicas; ++replica) {
      const int other = replica * kStages + rank.device;
      EXPECT_EQ(other, all_ids[static_cast<std::size_t>(2 * replica)]);
      const std::vector<float> theirs = values_of<float>(other, 10, run_seed());
      EXPECT_TRUE(std::equal(theirs.begin(), theirs.end(), all_rows.begin() + 10 * replica));
    }
  });
  const Tensor x = Tensor::from({1, 2}, {2});
  EXPECT_EQ((Shape{1, 2}), all_gather({x}, 1)[0].shape());
  EXPECT_EQ(x.values(), all_gather({x}, 1)[0].values());
  EXPECT_THROW(AllGatherOp(0), Error);
}

TEST(TransferOps, StagesOfOneReplicaExchangeValues) {
  constexpr int kReplicas = 2, kStages = 3;
  const Types type = {{DType::f32, {70, 3}}};
  run_ranks(kReplicas * kStages, [&](Comm& comm) {
    const RankContext rank = context(comm, kReplicas, kStages);
    std::vector<float> value = values_of<float>(rank.rank, 210, run_seed()), next(210);
    // Every stage sends to the next one; both replicas use the same channels.
    const auto channel = [](int from) { return static_cast<std::uint64_t>(20 + from); };
    const auto send_on = [&] {
      run(*prepare(SendOp(rank.device + 1), type, channel(rank.device)), {value.data()}, {}, rank);
    };
    const auto take = [&] {
      run(*prepare(ReceiveOp(rank.device - 1, type[0]), {}, channel(rank.device - 1)), {}, {next.data()},
          rank);
    };
    run_lanes(2, [&](int lane) {
      if (lane == 0 && rank.device + 1 < kStages) send_on();
      if (lane == 1 && rank.device > 0) take();
    });
    if (rank.device > 0) {
      EXPECT_TRUE(same_bits(next, values_of<float>(rank.rank - 1, 210, run_seed())));
    }
  });
}

TEST(TransferOps, BarriersCoverTheStagesOfAReplica) {
  std::atomic<int> entered[2] = {0, 0};
  run_ranks(4, [&](Comm& comm) {
    const RankContext rank = context(comm, 2, 2);
    ++entered[rank.replica];
    run(*prepare(BarrierOp(), {}, 30), {}, {}, rank);
    EXPECT_EQ(entered[rank.replica].load(), 2);
  });
}

TEST(TransferOps, DeclareTheirProperties) {
  const TensorType type{DType::f32, {4}};
  EXPECT_EQ(SendOp(1).lane(), LaneKind::send);
  EXPECT_EQ(ReceiveOp(1, type).lane(), LaneKind::receive);
  EXPECT_EQ(BarrierOp().lane(), LaneKind::collective);
  EXPECT_TRUE(BarrierOp().is_barrier());
  EXPECT_NE(BarrierOp().lane_index(), AllReduceOp(2).lane_index()) << "all-reduces cross barriers";
  EXPECT_FALSE(SendOp(1).is_barrier() || ReceiveOp(1, type).is_barrier() || AllReduceOp(2).is_barrier());
  EXPECT_EQ(ReceiveOp(2, type).attributes(), "peer_device=2 type=f32[4]");
  Graph graph;
  Trace trace(graph);
  EXPECT_EQ(ReceiveOp(2, type).vmap({{}, {}, 3})[0].shape(), (Shape{3, 4}));
  EXPECT_THROW(SendOp(1).vjp({{}, {}, {}, {}}), NoRule);
  EXPECT_THROW(ReceiveOp(1, type).vjp({{}, {}, {}, {}}), NoRule);
}

TEST(TransferOps, AMissingDeviceIsNamed) {
  ThreadWorld world(2);
  const auto comm = world.comm(0);
  const RankContext rank = context(*comm, 1, 2);
  float x = 0;
  const Types type = {{DType::f32, {}}};
  EXPECT_EQ(message_of<Error>([&] { run(*prepare(SendOp(2), type, 1), {&x}, {}, rank); }),
            "rank 0 (device 0 of 2): send with device 2");
  EXPECT_THROW(run(*prepare(ReceiveOp(0, type[0]), {}, 1), {}, {&x}, rank), Error)
      << "a transfer with itself";
}

TEST(CopyOps, AreTheIdentityOnTheirOwnLanes) {
  EXPECT_EQ(CopyOutOp().lane(), LaneKind::copy_out);
  EXPECT_EQ(CopyInOp().lane(), LaneKind::copy_in);
  const Tensor x = Tensor::from({1, -2, 3.5}, {3}, DType::bf16);
  const Tensor back = copy_in(copy_out(x));
  EXPECT_EQ(back.type(), x.type());
  EXPECT_EQ(back.values(), x.values());
  const Tensor grad = Tensor::from({4, 5, 6}, {3});
  EXPECT_EQ(CopyOutOp().vjp({{x}, {x}, {grad}, {true}})[0].values(), grad.values());
  EXPECT_EQ(CopyInOp().vjp({{x}, {x}, {grad}, {true}})[0].values(), grad.values());
  EXPECT_EQ(CopyInOp().vmap({{x}, {true}, 3})[0].values(), x.values());
  EXPECT_TRUE(CopyOutOp().may_alias({}).empty()) << "a copy must not share bytes";
}

}  // namespace
}  // namespace tandem::testing
