// Swapping activations or computing them again changes no bit and lowers the peak.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include <tandem/nn/attention_layers.h>
#include <tandem/nn/layers.h>
#include <tandem/nn/models/resnet.h>
#include <tandem/ops/pointwise.h>
#include <tandem/ops/reduce.h>
#include <tandem/ops/shape.h>
#include <tandem/plan/build.h>

#include "training_run.h"

namespace tandem::testing {
using namespace engine;
namespace {

TEST(MemoryEquivalence, SwapAndRecomputeChangeNoBit) {
  const Job job = small_residual_job();
  const Outcome kept = train(job, plain());
  for (const auto& [swap, recompute] :
       std::vector<std::pair<std::vector<std::string>, std::vector<std::string>>>{
           {{"*"}, {}}, {{}, {"block1", "block2"}}, {{"block0", "block3"}, {"block2"}}}) {
    SCOPED_TRACE(::testing::Message() << swap.size() << " swaps, " << recompute.size() << " recomputes");
    Strategy s = plain();
    s.swap = swap;
    s.recompute = recompute;
    const Outcome out = train(job, s);
    expect_same_training(kept, out);
  }
}

TEST(MemoryEquivalence, StagesSwapsAndRecomputesChangeNoBitOfBatchNormAndConvolution) {
  const Job job = convolutional_job();
  for (int microbatches : {1, 2}) {
    Strategy s = plain();
    s.microbatches = microbatches;
    const Outcome reference = train(job, s);
    for (int stages : {1, 2, 3}) {
      SCOPED_TRACE(::testing::Message() << stages << " stages, " << microbatches << " micro-batches");
      s.stages = stages;
      s.schedule = "1f1b";
      s.swap = {"block0"};
      s.recompute = {"block1"};
      const Outcome out = train(job, s);
      expect_same_training(reference, out);
    }
  }
}

// A product that DualPipe computes again needs the weights that F used, which are 2N − 1 − 2k updates old.
TEST(MemoryEquivalence, RecomputingAProductUnderDualPipeKeepsItsWeightVersions) {
  Strategy s = plain();
  s.schedule = "dualpipe";
  s.stages = 3;
  s.cuts = {"block1", "block2"};
  s.recompute = {"block0.conv conv2d", "block1.conv conv2d"};
  const Program p = program_of(convolutional_job(), s);
  std::map<std::string, int> versions;
  for (const StateBlock& state : p.states) versions[state.path] = p.block(state.block).slots;
  EXPECT_EQ(5, versions["block0.conv.weight"]);
  EXPECT_EQ(3, versions["block1.conv.weight"]);
  EXPECT_EQ(1, versions["block2.conv.weight"]);
}

TEST(MemoryEquivalence, RecomputingEverythingWorksUnderEverySchedule) {
  const Job job = convolutional_job();
  for (const std::string kind : {"gpipe", "1f1b", "pipedream", "dualpipe"})
    for (int stages : {2, 3})
      for (bool swap : {false, true}) {
        SCOPED_TRACE(::testing::Message() << kind << " " << stages << " stages, swap " << swap);
        Strategy s = plain();
        s.schedule = kind;
        s.stages = stages;
        const Outcome kept = train(job, s);
        (swap ? s.swap : s.recompute) = {"*"};
        const Outcome out = train(job, s);
        expect_same_results(kept, out);
        const auto sends = [](const Program& p) {
          return std::count_if(p.instructions.begin(), p.instructions.end(),
                               [&](const Instruction& x) { return p.lane(x.lane).kind == LaneKind::send; });
        };
        EXPECT_EQ(sends(kept.program), sends(out.program)) << "activations travel once";
      }
}

// The output of every block is a view of a view.
struct TwoViews : nn::Module {
  struct Block : nn::Module {
    Block(nn::Module& parent, const std::string& name, std::int64_t in)
        : Module(parent, name), linear(*this, "linear", {in, 6}) {}
    Tensor forward(const Tensor& x) override { return flatten(reshape(relu(linear(x)), {x.size(0), 2, 3})); }
    nn::Linear linear;
  };
  Block block0{*this, "block0", 4}, block1{*this, "block1", 6}, block2{*this, "block2", 6};
  nn::Linear head{*this, "head", {6, 5}};
  Tensor forward(const Tensor& x) override { return head(block2(block1(block0(x)))); }
};

// Recomputation runs at the lag of backward, which reads views of the value. At the lag of forward the value
// would be kept.
TEST(MemoryEquivalence, ValuesReadThroughViewsAreRecomputedAtTheLagOfBackward) {
  Job job = small_residual_job();
  job.model = [] { return std::make_unique<TwoViews>(); };
  job.sample = {4};
  for (const std::string kind : {"pipedream", "dualpipe"})
    for (const bool lockstep : {false, true}) {
      SCOPED_TRACE(::testing::Message() << kind << (lockstep ? " in lockstep" : ""));
      Strategy s = plain();
      s.schedule = kind;
      s.stages = 3;
      s.cuts = {"block1", "block2"};
      s.lockstep = lockstep;
      const Outcome kept = train(job, s);
      s.recompute = {"*"};
      const Outcome again = train(job, s);
      expect_same_results(kept, again);
      std::map<int, std::set<int>> lags;  // of each stage's backward
      for (const Instruction& instruction : again.program.instructions)
        if (instruction.tag.phase == Phase::backward &&
            again.program.lane(instruction.lane).kind == LaneKind::compute)
          lags[instruction.tag.stage].insert(instruction.lag);
      for (const auto& [stage, all] : lags) EXPECT_EQ(all.size(), 1U) << "stage " << stage;
    }
}

// The network has layers whose activations dominate the memory.
TEST(MemoryEquivalence, SwapAndRecomputeLowerThePeak) {
  Job job = convolutional_job();
  job.model = [] { return std::make_unique<nn::ResNet>(nn::ResNetOptions{.classes = 5}); };
  job.batch_size = 64;
  job.drains = {2};
  const Outcome kept = train(job, plain());
  Strategy s = plain();
  s.swap = {"*"};
  const Outcome swapped = train(job, s);
  EXPECT_LT(swapped.planned_peak, kept.planned_peak);
  EXPECT_EQ(kept.losses, swapped.losses);
  s.swap = {};
  s.recompute = {"layer1"};
  const Outcome recomputed = train(job, s);
  EXPECT_LT(recomputed.planned_peak, kept.planned_peak);
  EXPECT_EQ(kept.losses, recomputed.losses);
}

// One layer of GPT-2's size. No array of queries × keys exists.
TEST(MemoryEquivalence, APeakOfAttentionGrowsAtMostLinearlyWithTheText) {
  constexpr std::int64_t kFeatures = 768;
  struct Attending final : nn::Module {
    nn::SelfAttention attention{*this, "attention", {.features = kFeatures, .heads = 12, .causal = true}};
    nn::Linear head{*this, "head", {.in = kFeatures, .out = 5}};
    Tensor forward(const Tensor& x) override { return head(mean(attention(x), {1})); }
  };
  const auto peak_of = [&](std::int64_t length) {
    Job job;
    job.model = [] { return std::make_unique<Attending>(); };
    job.sample = {length, kFeatures};
    job.batch_size = 1;
    return program_of(job, plain()).memory[0].work;
  };
  for (std::int64_t length = 256, peak = peak_of(length); length < 4096; length *= 2) {
    const std::int64_t next = peak_of(2 * length);
    EXPECT_LE(next, 2 * peak) << length;
    peak = next;
  }
}

}  // namespace
}  // namespace tandem::testing
