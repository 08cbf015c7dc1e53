// The optimizers' updates, by their formulas.
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
  EXPECT_THROW(sgd_update(w, Tensor::zeros({DType::f32, {3, 2}}), lr), Error);
  EXPECT_THROW(sgd_update(w, w, Tensor::zeros({DType::f32, {3}})), Error);
  EXPECT_THROW(predict(w, w, Tensor::zeros({DType::i32, {}})), Error);
}

}  // namespace
}  // namespace tandem::testing
