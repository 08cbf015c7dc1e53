// An op from outside the library, with kernels in its own table, works like all others: eagerly, traced, for
// several models, and in a Trainer's Programs.
#include <vector>

#include <gtest/gtest.h>

#include <tandem/core/graph/state_dict.h>
#include <tandem/engine.h>
#include <tandem/ops/apply.h>

#include "class_dataset.h"
#include "expect_error.h"
#include "seed.h"
#include "training_run.h"

namespace tandem::testing {
using namespace engine;
namespace {

// 3x²·g
class CubeGrad final : public Op {
 public:
  std::string_view name() const override { return "cube_grad"; }
  Types infer(std::span<const TensorType> inputs) const override { return {inputs[0]}; }
  Tensors vjp(const VjpArgs&) const override { no_rule(*this, "vjp", "once is enough here"); }
  Tensors vmap(const VmapArgs& args) const override { return map_over_models(*this, args); }
  Work cost(std::span<const TensorType> in, std::span<const TensorType> out) const override {
    return streaming_work(in, out, 3);
  }
  std::vector<Alias> may_alias(std::span<const TensorType>) const override { return {}; }
};

// x³
class Cube final : public Op {
 public:
  std::string_view name() const override { return "cube"; }
  Types infer(std::span<const TensorType> inputs) const override { return {inputs[0]}; }
  Tensors vjp(const VjpArgs& a) const override {
    return apply_op(std::make_shared<CubeGrad>(), {a.inputs[0], a.grads[0]});
  }
  Tensors vmap(const VmapArgs& args) const override { return map_over_models(*this, args); }
  Work cost(std::span<const TensorType> in, std::span<const TensorType> out) const override {
    return streaming_work(in, out, 2);
  }
  std::vector<Alias> may_alias(std::span<const TensorType>) const override {
    return {{0, 0, Alias::in_place}};
  }
};

Tensor cube(const Tensor& x) { return apply_op1(std::make_shared<Cube>(), {x}); }

KernelPtr make_cube(const KernelSpec& spec) {
  if (spec.inputs[0].dtype != DType::f32) return nullptr;
  return make_kernel([n = spec.inputs[0].elements()](const Launch& l) {
    const auto* x = static_cast<const float*>(l.in[0]);
    auto* y = static_cast<float*>(l.out[0]);
    for (std::int64_t i = 0; i < n; ++i) y[i] = x[i] * x[i] * x[i];
  });
}

KernelPtr make_cube_grad(const KernelSpec& spec) {
  if (spec.inputs[0].dtype != DType::f32) return nullptr;
  return make_kernel([n = spec.inputs[0].elements()](const Launch& l) {
    const auto *x = static_cast<const float*>(l.in[0]), *g = static_cast<const float*>(l.in[1]);
    auto* y = static_cast<float*>(l.out[0]);
    for (std::int64_t i = 0; i < n; ++i) y[i] = 3 * x[i] * x[i] * g[i];
  });
}

const KernelTable& own_kernels() {
  static const KernelTable table = [] {
    KernelTable own("own", &cpu_kernels());
    own.add("cube", make_cube);
    own.add("cube_grad", make_cube_grad);
    return own;
  }();
  return table;
}

// `own`: with the op, or with the library's expression of the same function.
struct Net : nn::Module {
  explicit Net(bool own) : own(own) {}
  nn::Linear hidden{*this, "hidden", {.in = 4, .out = 8}}, head{*this, "head", {.in = 8, .out = 3}};
  Tensor forward(const Tensor& x) override {
    const Tensor h = hidden(x);
    return head(own ? cube(h) : h * h * h);
  }
  const bool own;
};

class OwnOps : public ::testing::Test {
 protected:
  OwnOps() { nn::set_default_dtype(DType::f32); }
  static void expect_near(const StateDict& a, const StateDict& b) {
    ASSERT_EQ(a.size(), b.size());
    for (const auto& [path, tensor] : a) {
      const auto x = tensor.values(), y = b.at(path).values();
      for (std::size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(x[i], y[i], 1e-5) << path << " " << i;
    }
  }
  std::shared_ptr<ClassDataset> samples = std::make_shared<ClassDataset>(24, run_seed());
};

TEST_F(OwnOps, RunEagerlyIfTheirKernelsAreRegistered) {
  const Tensor x = Tensor::from({1, -2, 3}, {3}).requires_grad();
  expect_error([&] { cube(x); }, {"cube", "kernel", "f32[3]"});
  const EagerKernels kernels(own_kernels());
  const Tensor y = cube(x);
  EXPECT_EQ((std::vector<double>{1, -8, 27}), y.values());
  sum(y).backward();
  EXPECT_EQ((std::vector<double>{3, 12, 27}), x.grad().values());
  {
    const EagerKernels library(cpu_kernels());
    EXPECT_THROW(cube(x), Error);
  }
  EXPECT_NO_THROW(cube(x));
  const Tensor narrow = Tensor::from({1.5, -2}, {2}, DType::bf16);
  EXPECT_EQ((std::vector<double>{3.375, -8}), cube(narrow).values());  // through f32
}

TEST_F(OwnOps, TrainAsTheLibrarysExpressionDoes) {
  const auto trained = [&](bool own) {
    Net net(own);
    net.initialize(run_seed());
    TrainerOptions o{.batch_size = 8, .epochs = 3, .lr = {0.05}, .test = samples};
    if (own) o.strategy.kernels = &own_kernels();
    Trainer(net, samples, std::move(o)).fit();
    return net.state();
  };
  expect_near(trained(true), trained(false));
}

// Two models; the op's kernel runs for each separately.
TEST_F(OwnOps, TrainInAStepOfSeveralModels) {
  const auto trained = [&](bool own) {
    Net net(own);
    net.initialize(run_seed());
    const auto first = net.state();
    net.initialize(run_seed() + 1);
    Strategy s{.models = 2};
    if (own) s.kernels = &own_kernels();
    TrainStep step([&](const Tensors& b) { return mse_loss(net(b[0]), b[1]); },
                   stack_states(std::vector{first, net.state()}), {.strategy = s, .seeds = {1, 2}});
    const Tensor x = Tensor::from({1, 0, -1, 2, 0.5, 1, 0, -1}, {2, 4}),
                 y = Tensor::from({1, 0, 0, 0, 1, 0}, {2, 3});
    for (int b = 0; b < 3; ++b) step.run({{x, y}}, {0.01, 0.02});
    return step.state();
  };
  expect_near(trained(true), trained(false));
}

TEST_F(OwnOps, AreNamedIfTheirResultIsNotFinite) {
  Net net(true);
  net.initialize(run_seed());
  auto state = net.state();
  for (std::int64_t i = 0; i < 8; ++i) state.at("hidden.bias").as<float>()[i] = 1e30F;
  net.load(state);
  TrainerOptions o{.batch_size = 8, .epochs = 1};
  o.strategy.kernels = &own_kernels();
  Trainer trainer(net, samples, std::move(o));
  expect_error([&] { trainer.fit(); }, {"cube in the model itself"});
}

}  // namespace
}  // namespace tandem::testing
