// Training gives PyTorch's numbers, which tests/golden/make.py wrote to tests/golden/training.json.
#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <tandem/core/base/convert.h>
#include <tandem/nn/models/convnet.h>
#include <tandem/nn/models/mlp.h>
#include <tandem/ops/kernels.h>
#include <tandem/plan/build.h>

#include "test_files.h"
#include "training_run.h"

namespace tandem::testing {
using namespace engine;
namespace {

using nlohmann::json;

json golden() { return read_json(TANDEM_SOURCE "/tests/golden/training.json"); }

std::unique_ptr<nn::Module> model_of(const std::string& name, std::int64_t classes) {
  const nn::MlpOptions mlp{.in = 12, .hidden = 6, .classes = classes, .blocks = 2};
  if (name == "mlp") return std::make_unique<nn::Mlp>(mlp);
  if (name == "mlp-residual") return std::make_unique<nn::MlpResidual>(mlp);
  return std::make_unique<nn::ConvNet>(nn::ConvNetOptions{.classes = classes, .widths = {4, 5}});
}

StateDict state_of(const json& state) {
  StateDict result;
  for (const auto& [path, t] : state.items())
    result.emplace(path,
                   Tensor::from(t["values"].get<std::vector<double>>(), t["shape"].get<Shape>(), DType::f64));
  return result;
}

// Supplies a case's batches and receives the losses.
class GoldenHost final : public Host {
 public:
  explicit GoldenHost(const json& c) : case_(c) {}
  void fill(const HostInput& in) override {
    if (in.name == kLearningRateInput) return in.set(0, case_["options"]["lr"]);
    const auto values =
        case_["batches"][static_cast<std::size_t>(in.batch)][in.name].get<std::vector<double>>();
    ASSERT_EQ(in.type.elements(), std::ssize(values)) << in.name;
    for (std::size_t i = 0; i < values.size(); ++i) in.set(static_cast<std::int64_t>(i), values[i]);
  }
  void deliver(const HostResult& result) override { losses.push_back(result.values().at(0)); }
  std::vector<double> losses;

 private:
  const json& case_;
};

// Relative to the largest element.
void expect_near(const Tensor& expected, const Tensor& actual, const std::string& path) {
  ASSERT_EQ(expected.type(), actual.type()) << path;
  const auto e = expected.values(), a = actual.values();
  double largest = 0;
  for (double x : e) largest = std::max(largest, std::abs(x));
  for (std::size_t i = 0; i < e.size(); ++i) EXPECT_NEAR(e[i], a[i], 1e-12 * largest) << path;
}

Optimizer optimizer_of(const json& c) {
  const json& o = c["options"];
  if (c["optimizer"] == "SGD")
    return SgdOptions{
        .momentum = o["momentum"], .weight_decay = o["weight_decay"], .nesterov = o["nesterov"]};
  const AdamOptions defaults;
  return AdamOptions{.beta1 = o.contains("betas") ? o["betas"][0].get<double>() : defaults.beta1,
                     .beta2 = o.contains("betas") ? o["betas"][1].get<double>() : defaults.beta2,
                     .epsilon = o.value("eps", defaults.epsilon),
                     .weight_decay = o["weight_decay"],
                     .decoupled = c["optimizer"] == "AdamW"};
}

void expect_golden(const json& c, std::int64_t samples, std::int64_t classes, const KernelTable& kernels) {
  nn::set_default_dtype(DType::f64);
  Job job;
  job.model = [&] { return model_of(c["name"], classes); };
  job.sample = c["sample"].get<Shape>();
  job.dtype = DType::f64;
  Strategy strategy;
  strategy.kernels = &kernels;
  strategy.optimizer = optimizer_of(c);
  if (!c["clip"].is_null()) strategy.gradients.clip_norm = c["clip"];
  if (c["optimizer"] == "AdamW") strategy.parameter_groups = {{{"*.bias"}, 0.5, 0.0}};
  GoldenHost host(c);
  Session session(build(trace_job(job, samples), strategy), {}, host, {.kernels = &kernels});
  session.load(state_of(c["initial"]));
  session.run(0, std::ssize(c["batches"]));
  ASSERT_EQ(c["batches"].size(), host.losses.size());
  for (std::size_t b = 0; b < host.losses.size(); ++b) {
    const double loss = c["batches"][b]["loss"];
    EXPECT_NEAR(loss, host.losses[b], 1e-12 * loss) << "batch " << b;
  }
  const auto state = session.state();
  for (const auto& [path, expected] : state_of(c["final"])) expect_near(expected, state.at(path), path);
}

TEST(Golden, ThreeStepsGivePyTorchsLossesAndWeights) {
  const json all = golden();
  ASSERT_EQ(6u, all["cases"].size());
  for (const json& c : all["cases"])
    for (const KernelTable* kernels : {&cpu_kernels(), &reference_kernels()}) {
      SCOPED_TRACE(c["name"].get<std::string>() + ", kernels of " + kernels->backend());
      expect_golden(c, all["samples"], all["classes"], *kernels);
    }
}

}  // namespace
}  // namespace tandem::testing
