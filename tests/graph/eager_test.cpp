// Eager computation, traced computation, and Programs give the same bits.
#include <cstring>

#include <gtest/gtest.h>

#include <tandem/core/base/error.h>
#include <tandem/core/graph/trace.h>
#include <tandem/nn/models/convnet.h>
#include <tandem/nn/pool_layers.h>
#include <tandem/ops/activation.h>
#include <tandem/ops/eager.h>
#include <tandem/ops/loss.h>
#include <tandem/ops/pointwise.h>
#include <tandem/ops/reduce.h>
#include <tandem/ops/shape.h>
#include <tandem/train/train_step.h>

#include "environment.h"
#include "expect_error.h"
#include "training_run.h"

namespace tandem::testing {
using namespace engine;
namespace {

TEST(Eager, AssigningToOrFromAnUndefinedTensorIsRefused) {
  const Tensor t = Tensor::from({1}, {1});
  EXPECT_THROW(assign(Tensor(), t), Error);
  EXPECT_THROW(assign(t, Tensor()), Error);
}

// The training loop that a user would write.
std::vector<double> train_eagerly(const Job& job, const SgdOptions& sgd, nn::Module& model) {
  nn::set_seed(job.seeds[0]);
  const Tensor lr = Tensor::full({job.dtype, {}}, job.rates[0]);
  StateDict momentum;
  std::vector<double> losses;
  std::int64_t batches = 0;
  for (auto n : job.drains) batches += n;
  for (std::int64_t b = 0; b < batches; ++b) {
    const EagerBatch scope(b);
    const Tensor loss = cross_entropy(model(images_of(job, b)), labels_of(job, b));
    loss.backward();
    losses.push_back(loss.item());
    const NoGrad no_grad;
    for (auto& [path, p] : model.named_parameters()) {
      if (!p->tensor.needs_grad()) continue;
      Tensor& v = momentum[path];
      if (!v) v = Tensor::zeros(p->tensor.type());
      const Tensors updated = sgd_update(p->tensor, v, p->tensor.grad(), lr, sgd);
      assign(p->tensor, updated[0]);
      v = updated[1];
      p->tensor.set_grad({});
    }
  }
  return losses;
}

void expect_eager_equals_program(const Job& job) {
  Strategy s;
  const SgdOptions sgd{.momentum = 0.9, .weight_decay = 1e-3};
  s.optimizer = sgd;
  s.threads = 2;
  const Outcome program = train(job, s);
  nn::set_default_dtype(job.dtype);
  const auto model = job.model();
  model->initialize(job.seeds[0]);
  const EnvironmentVariable threads("TANDEM_THREADS", "2");
  const auto losses = train_eagerly(job, sgd, *model);
  ASSERT_EQ(losses.size(), program.losses.size());
  for (std::size_t b = 0; b < losses.size(); ++b) EXPECT_EQ(losses[b], program.losses[b][0]) << "batch " << b;
  for (const auto& [path, p] : model->state())
    EXPECT_EQ(
        0, std::memcmp(p.data(), program.state.at(path).data(), static_cast<std::size_t>(p.type().bytes())))
        << path;
}

struct WithDropout final : nn::Module {
  nn::Linear first{*this, "first", {.in = 12, .out = 16}};
  nn::Dropout drop{*this, "drop", 0.3};
  nn::Linear second{*this, "second", {.in = 16, .out = 5}};
  Tensor forward(const Tensor& x) override { return second(drop(relu(first(flatten(x))))); }
};

TEST(Eager, TrainingEqualsTheProgramBitwise) {
  for (DType dtype : {DType::f32, DType::f64}) expect_eager_equals_program(small_residual_job(dtype));
}

TEST(Eager, DropoutDrawsTheSameNumbersAsAProgram) {
  Job job = small_residual_job();
  job.model = [] { return std::make_unique<WithDropout>(); };
  expect_eager_equals_program(job);
}

TEST(Eager, BatchNormAndConvolutionEqualTheProgramBitwise) {
  Job job = small_residual_job();
  job.sample = {8, 8, 3};
  job.model = [] {
    return std::make_unique<nn::ConvNet>(nn::ConvNetOptions{.classes = 5, .widths = {4, 8}});
  };
  expect_eager_equals_program(job);
}

// Every layer that the networks of nn/models do not use.
struct EveryLayer final : nn::Module {
  nn::Conv2d dilated{*this, "dilated", {.in = 3, .out = 8, .padding = 2, .dilation = 2}};
  nn::GroupNorm group_norm{*this, "group_norm", {.groups = 4, .channels = 8}};
  nn::SeparableConv2d separable{*this, "separable", {.in = 8, .out = 12, .padding = 1}};
  nn::MaxPool2d max_pool{*this, "max_pool", {.kernel = 2}};
  nn::ConvTranspose2d up{
      *this, "up", {.in = 12, .out = 6, .kernel = 4, .stride = 2, .padding = 1, .groups = 2}};
  nn::AvgPool2d avg_pool{*this, "avg_pool", {.kernel = 3, .stride = 1, .padding = 1}};
  nn::AdaptiveAvgPool2d means{*this, "means", {.height = 3, .width = 2}};
  nn::AdaptiveMaxPool2d maxima{*this, "maxima", {.height = 3, .width = 2}};
  nn::LayerNorm layer_norm{*this, "layer_norm", {.features = 72}};
  nn::Embedding embedding{*this, "embedding", {.count = 72, .features = 72}};
  nn::RmsNorm rms_norm{*this, "rms_norm", {.features = 72}};
  nn::Linear head{*this, "head", {.in = 72, .out = 5}};
  Tensor forward(const Tensor& x) override {
    const Tensor image = hard_swish(separable(silu(group_norm(dilated(x)))));
    const Tensor y = avg_pool(elu(up(max_pool(image))));
    const Tensor features = layer_norm(flatten(concat({means(y), maxima(y)}, -1)));
    return head(rms_norm(features + embedding(argmax(features))));
  }
};

Job every_layer_job() {
  Job job = small_residual_job();
  job.sample = {8, 8, 3};
  job.model = [] { return std::make_unique<EveryLayer>(); };
  return job;
}

TEST(Eager, EveryLayerEqualsTheProgramBitwise) { expect_eager_equals_program(every_layer_job()); }

TEST(Eager, EveryLayerTrainsSeveralModelsAsOne) {
  Job both = every_layer_job();
  both.seeds = {1, 5};
  both.rates = {0.05, 0.02};
  Strategy s;
  s.models = 2;
  const auto together = train(both, s).losses;
  for (std::size_t m : {0, 1}) {
    Job one = every_layer_job();
    one.seeds = {both.seeds[m]};
    one.rates = {both.rates[m]};
    const auto alone = train(one, Strategy()).losses;
    ASSERT_EQ(together.size(), alone.size());
    for (std::size_t b = 0; b < alone.size(); ++b) EXPECT_EQ(together[b][m], alone[b][0]) << "batch " << b;
  }
}

TEST(Eager, EveryLayerTrainsInMixedPrecision) {
  const Job job = every_layer_job();
  Strategy s;
  const auto f32 = train(job, s).losses;
  s.amp = DType::bf16;
  const auto mixed = train(job, s).losses;
  ASSERT_EQ(f32.size(), mixed.size());
  for (std::size_t b = 0; b < f32.size(); ++b)
    EXPECT_NEAR(f32[b][0], mixed[b][0], 0.05 * f32[b][0]) << "batch " << b;
}

TEST(Eager, GroupsThatDoNotDivideTheChannelsAreRefused) {
  struct Wrong : nn::Module {
    nn::Conv2d conv{*this, "conv", {.in = 6, .out = 8, .groups = 4}};
    Tensor forward(const Tensor& x) override { return conv(x); }
  };
  EXPECT_THROW(Wrong(), Error);
}

TEST(Eager, GradientsAddUpOverUses) {
  Tensor x = Tensor::from({1, 2, 3}, {3}, DType::f64);
  x.requires_grad();
  const Tensor y = sum(mul(x, add(x, x)));  // 2x²
  y.backward();
  EXPECT_EQ((std::vector<double>{4, 8, 12}), x.grad().values());
  sum(x).backward();  // adds to the present gradient
  EXPECT_EQ((std::vector<double>{5, 9, 13}), x.grad().values());
}

struct Scaled : nn::Module {
  Tensor w = add_parameter("w", Tensor::full({DType::f64, {2}}, 3));
  Tensor forward(const Tensor& x) override { return sum(square ? mul(w, w) : mul(x, w)); }
  bool square = false;
};

TEST(Eager, EveryLeafHasItsOwnGradient) {
  const Tensor a = Tensor::from({1, 2}, {2}).requires_grad(), b = Tensor::from({3, 4}, {2}).requires_grad();
  sum(a + b).backward();
  a.grad().as<float>()[0] = 7;
  EXPECT_EQ(b.grad().values(), (std::vector<double>{1, 1}));
}

TEST(Eager, AssignBeforeBackwardIsRefusedIfBackwardNeedsTheOldValue) {
  Scaled model;
  model.initialize(1);
  Tensor& w = model.named_parameters()[0].second->tensor;
  const Tensor x = Tensor::full({DType::f64, {2}}, 5);
  const Tensor linear = model(x);
  assign(w, x);
  linear.backward();  // d(xw)/dw = x: the old w is not needed
  EXPECT_EQ((std::vector<double>{5, 5}), w.grad().values());
  model.square = true;
  const Tensor squared = model(x);
  assign(w, Tensor::zeros(w.type()));
  expect_error([&] { squared.backward(); }, {"state 'w'"});
}

// The assigned value is read in this batch and in the next, also by a Tensor that was taken from the state
// before.
TEST(Eager, AnAssignedStateIsReadFromThenOnAlsoInAProgram) {
  struct Counting : nn::Module {
    Tensor count = add_buffer("count", Tensor::full({DType::f64, {}}, 1));
    Tensor weight = add_parameter("weight", Tensor::full({DType::f64, {}}, 1));
    Tensor forward(const Tensor& x) override {
      const Tensor before = count * 1.0;
      assign(count, count + 1.0);
      return mean(x * count * weight) + before * 10.0;
    }
  } model;
  model.initialize(1);
  const Tensor x = Tensor::from({1, 2, 3}, {3}, DType::f64);
  TrainStep step([&](const Tensors& b) { return model(b[0]); }, model.state());
  const NoGrad no_grad;
  for (const double expected : {14.0, 26.0, 38.0}) {
    EXPECT_EQ(expected, model(x).item());
    EXPECT_EQ(expected, step({x}, /*lr=*/0));
  }
}

TEST(Eager, GradientOfDropoutUsesTheMaskOfForwardInAnyBatch) {
  Tensor x = Tensor::full({DType::f64, {64}}, 1);
  x.requires_grad();
  nn::set_seed(3);
  WithDropout model;
  auto& drop = model.drop;
  Tensor y;
  {
    const EagerBatch scope(5);
    y = drop(x);
  }
  const EagerBatch other(6);
  sum(y).backward();
  EXPECT_EQ(y.values(), x.grad().values()) << "x is 1, so the gradient equals the output: mask times scale";
}

TEST(Eager, MicroBatchesDrawTheNumbersOfTheirSamples) {
  nn::set_seed(3);
  WithDropout model;
  const auto dropped = [&](std::int64_t samples, int microbatch) {
    const EagerBatch scope(5, microbatch);
    return model.drop(Tensor::full({DType::f64, {samples, 16}}, 1)).values();
  };
  const auto whole = dropped(8, 0);
  auto parts = dropped(4, 0);
  const auto second = dropped(4, 1);
  parts.insert(parts.end(), second.begin(), second.end());
  EXPECT_EQ(whole, parts);
}

TEST(Eager, BackwardNeedsAScalarThatRequiresAGradient) {
  Tensor x = Tensor::from({1, 2}, {2}, DType::f64);
  EXPECT_THROW(sum(x).backward(), Error);
  x.requires_grad();
  EXPECT_THROW(add(x, x).backward(), Error);
}

TEST(Trace, IsNeededToRecord) {
  EXPECT_EQ(Trace::active(), nullptr);
  expect_error(
      [] {
        Trace::current()->result("x", Tensor::zeros({DType::f32, {}}));
      },
      {"no Trace", "TrainStep"});
}

// Its graph may be destroyed, and another one may be at its address.
TEST(Trace, RefusesATensorOfAnEarlierTrace) {
  Tensor kept;
  for (int round = 0; round < 2; ++round) {
    Graph graph;
    Trace trace(graph);
    const Tensor x = trace.input("x", {DType::f32, {2}});
    if (round == 0)
      kept = relu(x);
    else
      EXPECT_THROW(add(x, kept), Error);
  }
}

TEST(Eager, RefusesShapesWhoseBytesDoNotFit) {
  for (std::int64_t extent :
       {std::int64_t{1} << 57, std::int64_t{1} << 62, std::int64_t{4611686018427387920}}) {
    EXPECT_THROW(Tensor::zeros({DType::f32, {extent}}), Error) << extent;
    EXPECT_THROW(broadcast_to(Tensor::zeros({DType::f32, {1}}), {extent}), Error) << extent;
  }
}

TEST(Eager, IntegersHaveNoGradients) {
  EXPECT_THROW(Tensor::zeros({DType::i32, {2}}).requires_grad(), Error);
  EXPECT_THROW(Tensor::zeros({DType::b8, {2}}).requires_grad(), Error);
}

TEST(Eager, ElementsAreReadOnlyAsTypesOfTheirSize) {
  Tensor x = Tensor::full({DType::f32, {2}}, 3);
  EXPECT_THROW(x.as<double>(), Error);
  EXPECT_THROW(x.as<std::int16_t>(), Error);
  EXPECT_EQ(3, x.as<float>()[1]);
  EXPECT_EQ(static_cast<void*>(x.as<std::byte>()), x.data());
}

TEST(Eager, ShapeErrorsQuoteTheRequest) {
  const Tensor x = Tensor::zeros({DType::f32, {6}});
  EXPECT_EQ("reshape to [-1, -1]: only one extent may be -1", message_of([&] { reshape(x, {-1, -1}); }));
  EXPECT_EQ("f32[6] does not reshape to [4, -1]: 6 elements are no multiple of 4", message_of([&] {
              reshape(x, {4, -1});
            }));
  expect_error([&] { slice(x, 0, 2, 2); }, {"a slice [2, 2) on axis 0"});
}

}  // namespace
}  // namespace tandem::testing
