// What a loss captures, and refusals of gradient().
#include <gtest/gtest.h>

#include <tandem/tandem.h>

#include "expect_error.h"

namespace tandem::testing {
namespace {

struct Net : nn::Module {
  nn::Linear head{*this, "head", {.in = 3, .out = 2}};
  Tensor forward(const Tensor& x) override { return head(x); }
};

// A Tensor that requires a gradient would be a constant of the trace, and its gradient would be lost.
TEST(Capture, OfATensorThatRequiresAGradientIsRefused) {
  Net net;
  net.initialize(1);
  Tensor scale = Tensor::full({DType::f32, {}}, 2);
  scale.requires_grad();
  const auto step = [&](const Tensor& captured) {
    TrainStep([&](const Tensors& b) { return mean(net(b[0]) * captured); }, net.state())(
        {Tensor::full({DType::f32, {2, 3}}, 1)}, 0.1);
  };
  expect_error([&] { step(scale); }, {"f32[]", "requires a gradient", "detach()"});
  expect_error([&] { step(scale * 2.0); }, {"requires a gradient"});
  EXPECT_NO_THROW(step(detach(scale)));
}

TEST(Capture, ANoGradOutsideATrainStepDoesNotReachIn) {
  Net net;
  net.initialize(1);
  TrainStep step([&](const Tensors& b) { return mean(net(b[0])); }, net.state());
  const NoGrad no_grad;
  step({Tensor::full({DType::f32, {2, 3}}, 1)}, 0.1);
  EXPECT_NE(step.state().at("head.bias").values(), net.state().at("head.bias").values());
}

TEST(Gradient, SaysIfANoGradIsInTheWay) {
  const Tensor x = Tensor::from({1, 2}, {2}).requires_grad(), y = sum(x * x);
  const NoGrad no_grad;
  EXPECT_EQ((std::vector<double>{2, 4}), gradient(y, {x})[0].values());
  expect_error([&] { gradient(sum(x * x), {x}); }, {"does not depend on Tensor 0", "under a NoGrad"});
  expect_error([&] { sum(x * x).backward(); }, {"under a NoGrad"});
  expect_error([&] { gradient(y, {Tensor::from({1}, {1})}); },
               {"requires no gradient: call requires_grad()"});
}

TEST(Gradient, RefusesAnUndefinedTensor) {
  Tensor x = Tensor::full({DType::f64, {}}, 2);
  x.requires_grad();
  expect_error(
      [&] {
        gradient(x * x, {x, Tensor()});
      },
      {"Tensor 1 of the second argument was given no value"});
}

}  // namespace
}  // namespace tandem::testing
