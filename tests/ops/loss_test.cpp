// Properties of losses that the op cases do not check.
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include <tandem/core/base/error.h>
#include <tandem/ops/eager.h>
#include <tandem/ops/kernels.h>
#include <tandem/ops/loss.h>
#include <tandem/ops/pointwise.h>
#include <tandem/ops/shape.h>

#include "both_backends.h"
#include "expect_error.h"

namespace tandem::testing {
using namespace engine;
namespace {

TEST(LossTest, CorrectCountTakesTheLabelsOfCrossEntropy) {
  const Tensor logits = Tensor::from({1, 2, 3, 6, 5, 4}, {2, 3});
  EXPECT_EQ(1, correct_count(logits, Tensor::from(std::vector{2, 1}, {2})).item<int>());
  EXPECT_THROW(correct_count(logits, Tensor::from(std::vector{2, 1}, {2, 1})), Error);
}

TEST(LossTest, OfNoSampleThatCountsIsZero) {
  Tensor logits = Tensor::from({1, 2, 3, 4, 5, 6}, {2, 3}).requires_grad();
  const Tensor loss = cross_entropy(logits, Tensor::full({DType::i64, {2}}, -100), {.ignore_index = -100});
  loss.backward();
  EXPECT_EQ(0, loss.item());
  EXPECT_FALSE(std::signbit(loss.item()));
  EXPECT_EQ(std::vector<double>(6), logits.grad().values());
}

TEST(LossTest, LabelsAreCheckedInEachIntegerType) {
  const Tensor logits = Tensor::zeros({DType::f32, {2, 3}});
  for (const DType dtype : {DType::i32, DType::i64, DType::u8}) {
    const Tensor labels = Tensor::from({1, 3}, {2}, dtype);
    expect_error([&] { cross_entropy(logits, labels); }, {"label 1 of 2 is 3", "3 classes"});
    expect_error([&] { cross_entropy(logits, labels, {.ignore_index = 0}); },
                 {"label 1 of 2 is 3", "3 classes"});
  }
  expect_error(
      [&] {
        cross_entropy(logits, Tensor::zeros({DType::i32, {3}}));
      },
      {"labels for f32[2, 3]", "i32[2]", "i32[3]"});
  expect_error(
      [&] {
        cross_entropy(logits, Tensor::zeros({DType::i32, {2}}), {.class_weights = logits});
      },
      {"class weights", "f32[3]", "f32[2, 3]"});
}

TEST(LossTest, CrossEntropyOfKnownLogits) {
  const Tensor logits = Tensor::from({1, 2, 3, 1000, 0, -1000}, {2, 3}),
               labels = Tensor::from({2, 1}, {2}, DType::i32);
  for (const KernelTable* table : both_backends()) {
    const double loss = evaluate(*table, std::make_shared<CrossEntropyOp>(), {logits, labels})[0].item();
    EXPECT_NEAR(loss, (0.40760596444438 + 1000) / 2, 1e-4);
  }
}

// A logarithm of a few units is lost next to a maximum of 1e30, unless the maximum is subtracted first.
TEST(LossTest, LargeEqualLogitsShareTheProbability) {
  const Tensor logits = Tensor::from({1e30, -1e30, 1e30, -INFINITY}, {1, 4}),
               label = Tensor::from({2}, {1}, DType::i32), g = Tensor::full({DType::f32, {}}, 1);
  const auto expect = [](const Tensor& t, const std::vector<double>& values) {
    for (std::size_t i = 0; i < values.size(); ++i)
      EXPECT_TRUE(t.values()[i] == values[i] || std::fabs(t.values()[i] - values[i]) < 1e-6) << t.values()[i];
  };
  for (const KernelTable* table : both_backends()) {
    const auto run = [&](const OpPtr& op, const Tensors& in) { return evaluate(*table, op, in)[0]; };
    expect(run(std::make_shared<SoftmaxOp>(false), {logits}), {0.5, 0, 0.5, 0});
    const Tensor logs = run(std::make_shared<SoftmaxOp>(true), {logits});
    expect(slice(logs, 1, 2, 4), {-std::log(2), -INFINITY});
    EXPECT_EQ(logs.values()[0], logs.values()[2]);
    EXPECT_NEAR(logs.values()[1], -2e30, 1e24);
    expect(run(std::make_shared<CrossEntropyOp>(), {logits, label}), {std::log(2)});
    expect(run(std::make_shared<CrossEntropyGradOp>(), {logits, label, g}), {0.5, 0, -0.5, 0});
  }
}

TEST(LossTest, ALabelOutsideTheClassesIsNamedAndNotRead) {
  const Tensor logits = Tensor::zeros({DType::f32, {3, 10}}), g = Tensor::full({DType::f32, {}}, 1);
  for (double bad : {10.0, -1.0, 2147483647.0})
    for (const KernelTable* table : both_backends()) {
      const Tensor labels = Tensor::from({0, bad, 9}, {3}, DType::i32);
      EXPECT_THROW(evaluate(*table, std::make_shared<CrossEntropyGradOp>(), {logits, labels, g}), Error);
      expect_error(
          [&] {
            evaluate(*table, std::make_shared<CrossEntropyOp>(), {logits, labels});
          },
          {"label 1 of 3 is ", std::to_string(static_cast<int>(bad)), "10 classes"});
    }
}

// Values of the formulas in exact arithmetic, at points where the naive formulas overflow or cancel.
TEST(LossTest, LargeLogitsKeepTheirPrecision) {
  const auto loss = [](double x, double t) {
    return bce_with_logits(Tensor::from({x}, {1}), Tensor::from({t}, {1})).item();
  };
  EXPECT_EQ(loss(200, 0), 200);
  EXPECT_EQ(loss(-200, 1), 200);
  for (double t : {0.0, 1.0}) {
    const double right = t == 1 ? 20 : -20;
    EXPECT_NEAR(loss(right, t), std::log1p(std::exp(-20.0)), 1e-14);
    EXPECT_NEAR(loss(right, 1 - t), 20, 1e-6);
  }
}

TEST(LossTest, AZeroLogitHasItsGradient) {
  Tensor x = Tensor::zeros({DType::f64, {2}});
  x.requires_grad();
  bce_with_logits(x, Tensor::from({0, 1}, {2}, DType::f64)).backward();
  EXPECT_EQ(x.grad().values(), (std::vector<double>{0.25, -0.25}));
}

TEST(LossTest, InvalidArgumentsAreRefused) {
  const Tensor labels = Tensor::zeros({DType::i32, {3}});
  const Tensor a = Tensor::zeros({DType::f32, {3, 2}}), b = Tensor::zeros({DType::f32, {2}});
  for (auto* f : {bce_with_logits, mse_loss, l1_loss}) EXPECT_THROW(f(a, b), Error);
  EXPECT_THROW(mse_loss(labels, labels), Error);
  EXPECT_THROW(smooth_l1_loss(a, a, 0), Error);
  EXPECT_THROW(cross_entropy(Tensor::zeros({DType::f32, {3, 2}}), labels, 1.1), Error);
  EXPECT_THROW(cross_entropy(Tensor::zeros({DType::f32, {3, 2}}), labels, NAN), Error);
  EXPECT_THROW(cross_entropy(Tensor::zeros({DType::f32, {4, 10}}), labels), Error);
  EXPECT_THROW(cross_entropy(Tensor::zeros({DType::bf16, {3, 10}}), labels), Error);
  EXPECT_THROW(cross_entropy(Tensor::zeros({DType::f32, {3}}), labels), Error);
}

TEST(CrossEntropy, DoesNotLookAtIgnoredSamples) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::nan("");
  for (const double value : {-inf, inf, nan})
    for (const double smoothing : {0.0, 0.1}) {
      Tensor logits = Tensor::from({value, 1, 2, 0.5, 0.25, 0}, {2, 3}, DType::f64);
      logits.requires_grad();
      const Tensor loss = cross_entropy(logits, Tensor::from({1, 2}, {2}, DType::i32),
                                        {.label_smoothing = smoothing, .ignore_index = 1});
      loss.backward();
      const Tensor one = logits[1];
      EXPECT_NEAR(loss.item(),
                  cross_entropy(reshape(one, {1, 3}), Tensor::from({2}, {1}, DType::i32), smoothing).item(),
                  1e-14);
      for (const double g : logits.grad()[0].values()) EXPECT_EQ(g, 0);
    }
}

}  // namespace
}  // namespace tandem::testing
