// Twenty steps of every network give PyTorch's losses, which tests/golden/make_networks.py computed from the
// same weights and batches and wrote to tests/golden/networks.json.
#include <cmath>
#include <set>

#include <gtest/gtest.h>

#include <tandem/nn/models/networks.h>
#include <tandem/ops/eager.h>
#include <tandem/ops/loss.h>

#include "golden_networks.h"
#include "test_files.h"

namespace tandem::testing {
namespace {

using nlohmann::json;

json golden_losses() { return read_json(TANDEM_SOURCE "/tests/golden/networks.json"); }

// PyTorch adds f32 sums in another order, and training lets the differences grow: those of VGG16 from 2e-7 in
// the first five steps to 0.0035 in the seventeenth, with kernels for AVX2.
double allowed(DType dtype, std::int64_t step) {
  if (dtype == DType::f64) return 1e-10;
  return step < 5 ? 1e-5 : step < 10 ? 1e-3 : 1e-2;
}

// The loss of the first batch in evaluation, with the running statistics after training.
double evaluation_loss(const Job& job, const StateDict& trained) {
  nn::set_default_dtype(job.dtype);
  const auto model = job.model();
  StateDict state;
  for (const auto& [path, parameter] : model->named_parameters()) state.emplace(path, trained.at(path));
  model->load(state);
  model->eval();
  const NoGrad no_grad;
  return cross_entropy((*model)(images_of(job, 0)), labels_of(job, 0)).item();
}

class GoldenNetworks : public ::testing::TestWithParam<GoldenNetwork> {};

TEST_P(GoldenNetworks, TwentyStepsGivePyTorchsLosses) {
  const GoldenNetwork& golden = GetParam();
  const json all = golden_losses();
  ASSERT_TRUE(all["losses"].contains(golden.name))
      << "PyTorch's losses are missing: run tests/golden/make_networks.py";
  const auto expected = all["losses"][golden.name].get<std::vector<double>>();
  ASSERT_EQ(expected.size(), kGoldenSteps);
  Strategy strategy;
  strategy.optimizer = golden.optimizer;
  strategy.threads = 2;
  const Outcome outcome = train(golden.job, strategy);
  ASSERT_EQ(outcome.losses.size(), expected.size());
  for (std::size_t s = 0; s < expected.size(); ++s)
    EXPECT_NEAR(outcome.losses[s][0], expected[s],
                allowed(golden.job.dtype, static_cast<std::int64_t>(s)) * expected[s])
        << "step " << s + 1;
  const double evaluated = all["evaluation"][golden.name];
  EXPECT_NEAR(evaluation_loss(golden.job, outcome.state), evaluated,
              allowed(golden.job.dtype, kGoldenSteps) * evaluated)
      << "in evaluation";
}

std::string test_name(const ::testing::TestParamInfo<GoldenNetwork>& info) {
  std::string name = info.param.name;
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(All, GoldenNetworks, ::testing::ValuesIn(golden_networks()), test_name);

TEST(GoldenNetworksTest, HaveEveryNetworkInBothPrecisions) {
  std::set<std::pair<std::string, DType>> there;
  for (const GoldenNetwork& g : golden_networks()) there.emplace(g.network, g.job.dtype);
  for (const std::string& name : nn::network_names())
    for (DType dtype : {DType::f32, DType::f64})
      EXPECT_TRUE(there.contains({name, dtype})) << name << " in " << name_of(dtype);
}

}  // namespace
}  // namespace tandem::testing
