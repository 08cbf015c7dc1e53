// Other arithmetic, namely fused chains of pointwise ops and products in bf16, against plain computation.
#include <gtest/gtest.h>

#include <tandem/core/base/error.h>
#include <tandem/nn/layers.h>
#include <tandem/ops/pointwise.h>
#include <tandem/ops/reduce.h>
#include <tandem/ops/shape.h>
#include <tandem/plan/build.h>

#include "training_run.h"

namespace tandem::testing {
using namespace engine;
namespace {

// y = gelu(x·a + x) and similar: chains, values that are read twice, casts, shapes that broadcast.
struct Chains : nn::Module {
  nn::Linear stem{*this, "stem", {12, 24}}, head{*this, "head", {24, 10}};
  Tensor forward(const Tensor& x) override {
    const Tensor h = stem(flatten(x));
    const Tensor a = tanh(scale(h, 0.5)), b = gelu(h * a + h), c = cast(cast(b - a, DType::bf16), h.dtype());
    return head(where(greater(c, scale(h, 0.1)), sigmoid(b) * c, exp(neg(abs(b)))) + mean(b, {0}));
  }
};

TEST(ArithmeticEquivalence, FusingPointwiseOpsChangesNoBit) {
  for (const bool chains : {false, true})
    for (const DType dtype : {DType::f32, DType::f64}) {
      Job job = small_residual_job(dtype);
      if (chains) job.model = [] { return std::make_unique<Chains>(); };
      Strategy s = plain();
      for (const int stages : {1, 2}) {
        s.stages = stages;
        s.cuts = stages == 1 ? std::vector<std::string>{} : std::vector<std::string>{"head"};
        s.schedule = stages == 1 ? "plain" : "dualpipe";
        s.fuse_pointwise = false;
        const Outcome apart = train(job, s);
        const Program long_one = program_of(job, s);
        s.fuse_pointwise = true;
        const Outcome fused = train(job, s);
        const Program short_one = program_of(job, s);
        expect_same_results(apart, fused);
        EXPECT_LT(short_one.instructions.size(), long_one.instructions.size());
        EXPECT_LE(planned_peak(short_one), planned_peak(long_one) * 102 / 100)
            << "small tensors may live longer";
      }
    }
}

// Products in bf16 with weights in f32 are close to training in f32, and the same under every schedule.
TEST(ArithmeticEquivalence, MixedPrecisionIsNearToF32AndTheSameUnderEverySchedule) {
  for (const bool images : {false, true}) {
    Job job = images ? convolutional_job() : small_residual_job();
    const Outcome f32 = train(job, plain());
    Strategy s = plain();
    s.amp = DType::bf16;
    const Outcome one = train(job, s);
    const Program p = program_of(job, s);
    std::map<std::string, int> products;
    for (const Instruction& instruction : p.instructions)
      if (instruction.op->precision() == Precision::low)
        ++products[std::string(name_of(instruction.outputs[0].dtype))];
    EXPECT_EQ(products.size(), 1u);
    EXPECT_GT(products["bf16"], 0);
    for (const StateBlock& state : p.states) EXPECT_EQ(state.type.dtype, DType::f32) << state.path;
    ASSERT_EQ(one.losses.size(), f32.losses.size());
    for (std::size_t b = 0; b < one.losses.size(); ++b) {
      EXPECT_NE(one.losses[b], f32.losses[b]) << "bf16 rounds";
      EXPECT_NEAR(one.losses[b][0], f32.losses[b][0], 0.02 * f32.losses[b][0]) << "batch " << b;
    }
    if (images) continue;  // batch norm depends on the micro-batches
    s.recompute = {"block2"};
    s.fuse_pointwise = false;
    const Outcome recomputed = train(job, s);
    expect_same_results(one, recomputed);
    s = plain();
    s.amp = DType::bf16;
    s.microbatches = 2;
    const Outcome accumulated = train(job, s);
    s.stages = 2;
    s.cuts = {"block2"};
    s.schedule = "1f1b";
    const Outcome pipelined = train(job, s);
    expect_same_results(accumulated, pipelined);
  }
}

TEST(ArithmeticEquivalence, MixedPrecisionRefusesOtherTypes) {
  Strategy s = plain();
  s.amp = DType::f16;
  EXPECT_THROW(program_of(small_residual_job(), s), Error);
  s.amp = DType::bf16;
  EXPECT_THROW(program_of(small_residual_job(DType::f64), s), Error);
}

}  // namespace
}  // namespace tandem::testing
