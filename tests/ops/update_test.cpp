// The optimizers' updates, by their formulas.
#include <cmath>

#include <gtest/gtest.h>

#include <tandem/core/base/error.h>
#include <tandem/ops/pointwise.h>
#include <tandem/ops/update.h>

namespace tandem::testing {
using namespace engine;
namespace {

// By the formula of torch.optim.SGD: w = (1, −2), gradients (0.5, 1), then (−0.25, 0.5); learning rate 0.1,
// momentum 0.9, weight decay 0.01.
TEST(UpdateTest, TwoStepsFollowTheFormula) {
  const auto pair = [](double a, double b) { return Tensor::from({a, b}, {2}, DType::f64); };
  const Tensor lr = Tensor::from({0.1}, {}, DType::f64);
  const auto two_steps = [&](bool nesterov) {
    const SgdOptions options{0.9, 0.01, nesterov};
    Tensors state = sgd_update(pair(1, -2), pair(0, 0), pair(0.5, 1), lr, options);
    state = sgd_update(state[0], state[1], pair(-0.25, 0.5), lr, options);
    return state[0].values();
  };
  EXPECT_NEAR(two_steps(false)[0], 0.927151, 1e-12);
  EXPECT_NEAR(two_steps(false)[1], -2.234102, 1e-12);
  EXPECT_NEAR(two_steps(true)[0], 0.90757411, 1e-12);
  EXPECT_NEAR(two_steps(true)[1], -2.35642622, 1e-12);
}

// The same gradients. v: (0.051, 0.098), then by g' = (−0.25 + 0.01w, 0.5 + 0.01w) with w after the first
// step.
TEST(UpdateTest, RulesOfSgdFollowTheirFormulas) {
  const auto pair = [](double a, double b) { return Tensor::from({a, b}, {2}, DType::f64); };
  const Tensor lr = Tensor::from({0.1}, {}, DType::f64);
  const auto two_steps = [&](SgdRule rule) {
    const SgdOptions options{.momentum = 0.9, .weight_decay = 0.01, .rule = rule};
    Tensors state = sgd_update(pair(1, -2), pair(0, 0), pair(0.5, 1), lr, options);
    return sgd_update(state[0], state[1], pair(-0.25, 0.5), lr, options);
  };
  // ema: w1 = 1 − 0.1·0.051 = 0.9949, v2 = 0.9·0.051 + 0.1·(−0.25 + 0.009949) = 0.0218949
  const Tensors ema = two_steps(SgdRule::ema);
  EXPECT_NEAR(ema[0].values()[0], 0.99271051, 1e-12);
  EXPECT_NEAR(ema[1].values()[0], 0.0218949, 1e-12);
  EXPECT_NEAR(ema[0].values()[1], -2.0098 - 0.1 * 0.1361902, 1e-12);
  // raw+ema: w1 = 1 − 0.1·0.51 = 0.949, g2 = −0.25 + 0.00949, w2 = 0.949 + 0.024051
  const Tensors raw = two_steps(SgdRule::raw_ema);
  EXPECT_NEAR(raw[0].values()[0], 0.973051, 1e-12);
  EXPECT_NEAR(raw[1].values()[0], 0.9 * 0.051 + 0.1 * -0.24051, 1e-12);
}

// With a constant gradient g the momentum converges; then a prediction is what the updates do.
TEST(UpdateTest, PredictionsOfAConstantGradientAreExact) {
  const Tensor g = Tensor::from({0.3, -2}, {2}, DType::f64), lr = Tensor::from({0.01}, {}, DType::f64);
  for (const SgdRule rule : {SgdRule::momentum, SgdRule::ema, SgdRule::raw_ema}) {
    const SgdOptions options{.momentum = 0.9, .rule = rule};
    Tensors state{Tensor::zeros(g.type()), Tensor::zeros(g.type())};
    const auto update = [&] { state = sgd_update(state[0], state[1], g, lr, options); };
    for (int i = 0; i < 5; ++i)
      update();  // γ^n·lr·g·[s − γ(1 − γ^s)/(1 − γ)] is missing, times 1/(1 − γ) for momentum
    for (int more : {0, 400}) {
      for (int i = 0; i < more; ++i) update();
      const Tensor predicted = predict(state[0], state[1], lr * 3);
      Tensors before = state;
      for (int i = 0; i < 3; ++i) update();
      const double off = predicted.values()[0] - state[0].values()[0], n = 5;
      const double missing = more > 0 ? 0
                             : rule == SgdRule::raw_ema
                                 ? 3 * 0.01 * 0.3 * std::pow(0.9, n)
                                 : (rule == SgdRule::momentum ? 10 : 1) * 0.01 * 0.3 * std::pow(0.9, n) *
                                       (3 - 0.9 * (1 - std::pow(0.9, 3)) / 0.1);
      EXPECT_NEAR(off, missing, more > 0 ? 3e-13 : 1e-12) << static_cast<int>(rule) << " " << more;
      state = before;
    }
  }
}

// With a constant gradient Adam's corrected means are g and g² from the first step on.
TEST(UpdateTest, PredictionsOfAdamAreExactForAConstantGradient) {
  const Tensor g = Tensor::from({0.3, -2}, {2}, DType::f64), lr = Tensor::from({0.01}, {}, DType::f64);
  for (const AdamOptions& options : {AdamOptions{}, AdamOptions{.beta1 = 0.5, .beta2 = 0.7}}) {
    Tensors state{Tensor::from({1, 2}, {2}, DType::f64), Tensor::zeros(g.type()), Tensor::zeros(g.type()),
                  Tensor::zeros({DType::f64, {}})};
    const auto predicted = [&] {
      return adam_predict(state[0], state[1], state[2], state[3], lr * 4, options).values();
    };
    EXPECT_EQ(predicted(), state[0].values());  // no update yet
    const auto update = [&] { state = adam_update(state[0], state[1], state[2], g, state[3], lr, options); };
    update();
    const std::vector<double> ahead = predicted();
    for (int i = 0; i < 4; ++i) update();
    for (std::size_t i = 0; i < 2; ++i) EXPECT_NEAR(ahead[i], state[0].values()[i], 1e-12);
  }
  // w(1 − c·decay) − c·sign(g), c = 0.04, before epsilon
  const AdamOptions decoupled{.epsilon = 0, .weight_decay = 0.5, .decoupled = true};
  const Tensor w = Tensor::from({1, 2}, {2}, DType::f64);
  const Tensors one = adam_update(w, Tensor::zeros(g.type()), Tensor::zeros(g.type()), g,
                                  Tensor::zeros({DType::f64, {}}), lr * 0, decoupled);
  const auto far = adam_predict(one[0], one[1], one[2], one[3], lr * 4, decoupled).values();
  EXPECT_NEAR(far[0], 1 * 0.98 - 0.04, 1e-12);
  EXPECT_NEAR(far[1], 2 * 0.98 + 0.04, 1e-12);
}

// In f32, 0.9999 is 0.99989998, and 1 minus that is not 0.0001.
TEST(UpdateTest, AdamInF32FollowsTheFormulaForBetasCloseToOne) {
  const auto two_steps = [](DType dtype, double beta2) {
    const auto values = [&](const std::vector<double>& v) { return Tensor::from(v, {2}, dtype); };
    const AdamOptions options{.beta2 = beta2};
    Tensors state{values({0, 0}), values({0, 0}), values({0, 0}), Tensor::zeros({DType::f32, {}})};
    for (const auto& g : {values({0.5, -3}), values({-0.25, 1})})
      state = adam_update(state[0], state[1], state[2], g, state[3], Tensor::from({0.1}, {}), options);
    return state;
  };
  for (const double beta2 : {0.99, 0.9999, 0.999999, 0.999999999})
    for (const std::size_t k : {0, 2}) {
      const std::vector<double> exact = two_steps(DType::f64, beta2)[k].values();
      for (std::size_t i = 0; i < 2; ++i)
        EXPECT_NEAR(two_steps(DType::f32, beta2)[k].values()[i], exact[i], 1e-6 * std::abs(exact[i]))
            << "output " << k << ", beta2 " << beta2;
    }
}

TEST(UpdateTest, InvalidArgumentsAreRefused) {
  const Tensor w = Tensor::zeros({DType::f32, {2, 3}}), lr = Tensor::zeros({DType::f32, {}});
  EXPECT_THROW(sgd_update(w, w, w, lr, {}), Error);
  EXPECT_THROW(sgd_update(w, w, lr, {.momentum = 0.9}), Error);
  EXPECT_THROW(sgd_update(w, w, lr, {.nesterov = true}), Error);
  EXPECT_THROW(sgd_update(w, w, w, lr, {.momentum = 0.9, .nesterov = true, .rule = SgdRule::ema}), Error);
  EXPECT_THROW(sgd_rule("sgd"), Error);
  EXPECT_THROW(sgd_update(w, Tensor::zeros({DType::f32, {3, 2}}), lr), Error);
  EXPECT_THROW(sgd_update(w, w, Tensor::zeros({DType::f32, {3}})), Error);
  EXPECT_THROW(predict(w, w, Tensor::zeros({DType::i32, {}})), Error);
}

}  // namespace
}  // namespace tandem::testing
