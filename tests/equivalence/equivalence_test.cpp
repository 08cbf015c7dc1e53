// Rule 2: with any pass on or off, the losses are the same. This file tests ranks, stages, micro-batches,
// models, and all at once; equivalence_*_test.cpp have the others.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include <tandem/core/base/error.h>
#include <tandem/dist/data_parallel.h>
#include <tandem/dist/thread_comm.h>
#include <tandem/nn/layers.h>
#include <tandem/ops/matmul.h>
#include <tandem/ops/pointwise.h>
#include <tandem/ops/shape.h>
#include <tandem/plan/build.h>

#include "expect_error.h"
#include "training_run.h"

namespace tandem::testing {
using namespace engine;
namespace {

TEST(Equivalence, PlainTrainingLearns) {
  Job job = small_residual_job();
  job.drains = {40};
  job.period = 1;  // so that the loss must fall
  const Outcome out = train(job, plain());
  ASSERT_EQ(40u, out.losses.size());
  EXPECT_LT(out.losses.back()[0], 0.5 * out.losses.front()[0]);
  EXPECT_EQ(out.planned_peak, out.executed_peak);
}

TEST(Equivalence, FlushSchedulesEqualAccumulationBitwise) {
  for (int models : {1, 3})
    for (int microbatches : {1, 2, 4}) {
      Job job = small_residual_job(models == 1 ? DType::f64 : DType::f32);
      if (models == 3) job.seeds = {3, 8, 5}, job.rates = {0.1, 0.05, 0.02};
      Strategy s = plain();
      s.microbatches = microbatches;
      const Outcome reference = train(job, s);
      for (const std::string kind : {"plain", "gpipe", "1f1b"})
        for (int stages : {1, 2, 4}) {
          SCOPED_TRACE(::testing::Message()
                       << kind << " stages " << stages << " microbatches " << microbatches);
          s.schedule = kind;
          s.stages = stages;
          const Outcome out = train(job, s);
          expect_same_training(reference, out);
        }
    }
}

TEST(Equivalence, ReplicasEqualTheBigBatch) {
  const Job job = small_residual_job(DType::f64);
  const Outcome one = train(job, plain());
  for (int replicas : {2, 4})
    for (int stages : {1, 2})
      for (int microbatches : {1, 2})
        for (bool grouped : {false, true}) {
          SCOPED_TRACE(::testing::Message() << replicas << " replicas, " << stages << " stages, "
                                            << microbatches << " micro-batches, grouped " << grouped);
          Strategy s = plain();
          s.replicas = replicas;
          s.stages = stages;
          s.microbatches = microbatches;
          if (grouped) s.fusion_groups = {{{"stem.weight", "stem.bias"}}, {{"head.weight", "head.bias"}, 2}};
          const Outcome out = train(job, s);
          EXPECT_LE(largest_difference(one, out), 1e-12);
          EXPECT_EQ(out.planned_peak, out.executed_peak);
        }
}

TEST(Equivalence, FusionGroupsChangeNoBit) {
  const Job job = small_residual_job();
  Strategy s = plain();
  s.replicas = 2;
  const Outcome separate = train(job, s);
  s.fusion_groups = {{{"head.weight", "head.bias", "block3.second.weight"}},
                     {{"stem.weight", "block0.first.bias", "stem.bias"}}};
  for (const int threads : {1, 2, 3}) {
    for (FusionGroup& group : s.fusion_groups) group.threads = threads;
    expect_same_results(separate, train(job, s));
  }
}

// One step on 2 to 4 ranks, under each policy that makes groups from bytes, by each algorithm, in long and in
// short segments, with 1 to 3 threads. All have the bits of separate all-reduces by one thread.
TEST(Equivalence, OneStepOfRanksEqualsTheBigBatchUnderEveryPolicy) {
  Job job = wide_residual_job(DType::f64);
  job.batch_size = 12;
  job.drains = {1};
  const Outcome one = train(job, plain());
  for (const int ranks : {2, 3, 4}) {
    Strategy s = plain();
    s.replicas = ranks;
    const auto layers = gradient_layers(trace_job(job, job.batch_size / ranks), s);
    const Outcome separate = train(job, s);
    EXPECT_LE(largest_difference(one, separate), 1e-12);
    for (const char* policy : {"se", "wfbp", "ddp"})
      for (const int threads : {1, 2, 3}) {
        s.fusion_groups = fusion_groups(layers, policy);
        for (FusionGroup& group : s.fusion_groups) group.threads = threads;
        for (const CommOptions& options :
             {CommOptions{}, CommOptions{.segment_bytes = 20'000},
              CommOptions{.collective = CollectiveAlgorithm::ring},
              CommOptions{.collective = CollectiveAlgorithm::ring, .segment_bytes = 20'000}}) {
          SCOPED_TRACE(::testing::Message()
                       << ranks << " ranks, " << policy << ", " << threads << " threads");
          expect_same_results(separate, train(job, s, thread_comms(ranks, options)));
        }
      }
  }
}

// What one replica sums, all must have, after every batch: weights and momentum.
TEST(Equivalence, ReplicasAreEqualAfterEveryBatch) {
  Job job = small_residual_job();
  job.batch_size = 12;
  for (const int ranks : {2, 3, 4})
    for (const CollectiveAlgorithm algorithm : {CollectiveAlgorithm::direct, CollectiveAlgorithm::ring}) {
      Strategy s = plain();
      s.replicas = ranks;
      s.fusion_groups = {{{"head.weight", "head.bias"}, 2}};
      JobHost host(job, 1);
      Session session(program_of(job, s), thread_comms(ranks, {.collective = algorithm}), host);
      session.load(initial_state(job));
      StateDict before = session.snapshot()[0];
      for (int batch = 0; batch < 6; ++batch) {
        SCOPED_TRACE(::testing::Message() << ranks << " ranks, batch " << batch);
        session.run(batch, 1);
        const Session::Snapshot replicas = session.snapshot();
        ASSERT_EQ(std::ssize(replicas), ranks);
        for (int r = 1; r < ranks; ++r) expect_same_state(replicas[0], replicas[static_cast<std::size_t>(r)]);
        EXPECT_NE(before.at("stem.weight").values(), replicas[0].at("stem.weight").values());
        before = replicas[0];
      }
    }
}

// A result is there before backward begins, but its all-reduce does not hold up those of gradients.
TEST(Equivalence, ResultsAreReducedAfterTheGradients) {
  for (const int stages : {1, 2}) {
    Strategy s = plain();
    s.replicas = 2;
    s.stages = stages;
    const Program p = program_of(small_residual_job(), s);
    std::vector<std::string> last;  // all-reduces of the last stage, in order
    for (const Instruction& i : p.instructions)
      if (p.lane(i.lane).kind == LaneKind::collective && p.lane(i.lane).device == stages - 1)
        last.push_back(i.name);
    ASSERT_GT(std::ssize(last), 2);
    EXPECT_NE(last.back().find("loss"), std::string::npos) << last.back();
    EXPECT_EQ(1, std::ranges::count_if(last, [](const auto& n) { return n.find("loss") != n.npos; }));
  }
}

// LIBRA's Eqs. 3 to 6, for two replicas: a is two hops, and as many bytes are sent as there are gradients.
TEST(Equivalence, ContentionSetsTheCostsOfAllReduces) {
  Strategy s = plain();
  s.replicas = 2;
  s.link.latency = 1e-4;
  s.contention = std::vector<ThreadRates>{{1, 0.9, 1e6, 1.2e6}, {2, 0.7, 2e6, 2.2e6}};  // bytes per ms
  s.fusion_groups = {{{"head.weight", "head.bias"}, 2}};
  int by_two = 0;
  for (const Instruction& i : program_of(small_residual_job(), s).instructions) {
    if (i.op->name() != "all_reduce") continue;
    double bytes = 0;
    for (const TensorType& t : i.inputs) bytes += static_cast<double>(t.bytes());
    const bool two = i.tag.threads == 2;
    by_two += two;
    const double alone = 2e-4 + bytes / (two ? 2.2e9 : 1.2e9), overlapped = 2e-4 + bytes / (two ? 2e9 : 1e9);
    EXPECT_DOUBLE_EQ(alone, i.cost.seconds) << i.name;
    EXPECT_DOUBLE_EQ(alone / overlapped, i.cost.own_rate) << i.name;
    EXPECT_EQ(two ? 0.7 : 0.9, i.cost.others_rate) << i.name;
  }
  EXPECT_EQ(1, by_two);
  s.fusion_groups[0].threads = 4;
  expect_error([&] { program_of(small_residual_job(), s); }, {"no rates for 4 threads, only for 1, 2"});
}

// The gradients of a group are computed where they are reduced, next to each other.
TEST(Equivalence, FusingCopiesNothing) {
  const Job job = small_residual_job();
  Strategy s = plain();
  s.replicas = 2;
  s.fusion_groups = {{{"head.weight", "head.bias", "block3.second.weight"}}, {{"stem.weight", "stem.bias"}}};
  for (int microbatches : {1, 2}) {
    s.microbatches = microbatches;
    const Program p = program_of(job, s);
    std::size_t groups = 0;
    for (const Instruction& instruction : p.instructions) {
      EXPECT_NE(instruction.op->name(), "copy") << instruction.name;
      if (instruction.op->lane() != LaneKind::collective) continue;
      ++groups;
      std::int64_t end = 0;
      for (MemberId m : instruction.reads) {
        EXPECT_EQ(p.member(m).block, p.member(instruction.reads[0]).block) << instruction.name;
        EXPECT_EQ(p.member(m).offset, end) << instruction.name;
        end = p.member(m).offset + align_up(p.member(m).bytes);
      }
    }
    EXPECT_GT(groups, 2u);
  }
}

TEST(Equivalence, ModelsSideBySideEqualModelsAloneBitwise) {
  Job job = small_residual_job();
  job.seeds = {3, 8, 5};
  job.rates = {0.1, 0.05, 0.02};
  const Outcome together = train(job, plain());
  for (std::size_t m = 0; m < job.seeds.size(); ++m) {
    Job alone = job;
    alone.seeds = {job.seeds[m]};
    alone.rates = {job.rates[m]};
    const Outcome out = train(alone, plain());
    for (std::size_t b = 0; b < out.losses.size(); ++b)
      EXPECT_EQ(out.losses[b][0], together.losses[b][m]) << "model " << m << " batch " << b;
  }
}

TEST(Equivalence, AllFeaturesTogetherEqualPlainTraining) {
  Job job = small_residual_job(DType::f64);
  job.seeds = {3, 8};
  job.rates = {0.1, 0.05};
  const Outcome one = train(job, plain());
  for (const std::string kind : {"gpipe", "1f1b"}) {
    Strategy s = plain();
    s.replicas = 2;
    s.stages = 2;
    s.microbatches = 2;
    s.schedule = kind;
    s.swap = {"block0"};
    s.recompute = {"block3"};
    const Outcome out = train(job, s);
    EXPECT_LE(largest_difference(one, out), 1e-12);
    EXPECT_EQ(out.planned_peak, out.executed_peak);
  }
}

// Two replicas × two stages × two models, with swaps and recomputes, under the budget that the plan needs.
TEST(Equivalence, AllFeaturesTogetherEqualOneReplicaUnderLaggedSchedules) {
  Job job = small_residual_job(DType::f64);
  job.drains = {6, 3};
  job.seeds = {3, 8};
  job.rates = {0.1, 0.05};
  for (const std::string kind : {"pipedream", "dualpipe"}) {
    SCOPED_TRACE(kind);
    Strategy s = plain();
    s.stages = 2;
    s.cuts = {"block2"};  // the budget chooses no others
    s.schedule = kind;
    const Outcome one = train(job, s);
    s.replicas = 2;
    s.swap = {"block0"};
    s.recompute = {"block3"};
    const Outcome probe = train(job, s);
    EXPECT_LE(largest_difference(one, probe), 1e-12);
    s.memory_budget = std::max(planned_peak(probe.program, 0), planned_peak(probe.program, 1));
    const Outcome out = train(job, s);
    EXPECT_EQ(probe.losses, out.losses);
    EXPECT_EQ(out.planned_peak, out.executed_peak);
    --s.memory_budget;
    EXPECT_THROW(train(job, s), Error);
  }
}

struct WithDropout final : nn::Module {
  nn::Linear first{*this, "first", {.in = 12, .out = 16}};
  nn::Dropout drop{*this, "drop", 0.4};
  nn::Linear second{*this, "second", {.in = 16, .out = 5}};
  Tensor forward(const Tensor& x) override { return second(drop(relu(first(flatten(x))))); }
};

TEST(Equivalence, DropoutDrawsTheSameNumbersUnderEveryStrategy) {
  Job job = small_residual_job(DType::f64);
  job.model = [] { return std::make_unique<WithDropout>(); };
  const Outcome one = train(job, plain());
  for (int replicas : {1, 2})
    for (int microbatches : {1, 2})
      for (int stages : {1, 2}) {
        Strategy s = plain();
        s.replicas = replicas;
        s.microbatches = microbatches;
        s.stages = stages;
        s.schedule = "gpipe";
        if (stages == 2) s.cuts = {"drop"};  // so that the stage that computes its output also uses it
        s.recompute = {"drop"};
        EXPECT_LE(largest_difference(one, train(job, s)), 1e-12)
            << replicas << " " << microbatches << " " << stages;
      }
  Job three = job;
  three.seeds = {9, 1, 4};
  three.rates = {0.05, 0.05, 0.05};
  const Outcome together = train(three, plain());
  for (std::size_t b = 0; b < one.losses.size(); ++b) EXPECT_EQ(one.losses[b][0], together.losses[b][1]);
}

struct SharedGradient final : nn::Module {
  nn::Linear a{*this, "a", {.in = 12, .out = 5, .bias = false}},
      b{*this, "b", {.in = 12, .out = 5, .bias = false}};
  Tensor forward(const Tensor& x) override {
    const auto weights = named_parameters();
    return linear(flatten(x), add(weights[0].second->tensor, weights[1].second->tensor));
  }
};

TEST(Equivalence, ParametersThatShareAGradientTrainOnReplicas) {
  Job job = small_residual_job(DType::f64);
  job.model = [] { return std::make_unique<SharedGradient>(); };
  Strategy s = plain();
  const Outcome one = train(job, s);
  s.replicas = 2;
  EXPECT_LE(largest_difference(one, train(job, s)), 1e-12);
}

TEST(Equivalence, NonFiniteResultsNeverMatch) {
  Outcome a, b;
  a.losses = {{1.0}};
  b.losses = {{std::nan("")}};
  EXPECT_EQ(largest_difference(a, a), 0);
  EXPECT_GT(largest_difference(a, b), 1);
  EXPECT_GT(largest_difference(b, b), 1);
  b.losses = {{1.0}, {2.0}};
  EXPECT_GT(largest_difference(a, b), 1);
}

}  // namespace
}  // namespace tandem::testing
