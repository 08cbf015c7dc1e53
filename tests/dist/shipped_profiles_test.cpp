// The profiles of docs/profiles: they hold the layers of the real networks, and every policy can plan them.
#include <gtest/gtest.h>

#include <tandem/dist/all_reduce_profile.h>

#include "test_name.h"

namespace tandem {
namespace {

struct Shipped {
  const char* name;
  double parameters;  // as counted for the networks by others
  std::size_t layers;
  double batch_size;
};

class ShippedProfile : public ::testing::TestWithParam<Shipped> {
 protected:
  const AllReduceProfile profile =
      read_all_reduce_profile(std::string(TANDEM_SOURCE "/docs/profiles/") + GetParam().name + ".json");
};

TEST_P(ShippedProfile, HasTheParametersOfTheNetworkInTheOrderOfBackward) {
  double bytes = 0;
  for (const GradientLayer& layer : profile.layers) {
    EXPECT_GT(layer.gradient_bytes, 0) << layer.name;
    EXPECT_GT(layer.compute_ms, 0) << layer.name;
    bytes += layer.gradient_bytes;
  }
  EXPECT_EQ(4 * GetParam().parameters, bytes);
  EXPECT_EQ(GetParam().layers, profile.layers.size());
  EXPECT_EQ(GetParam().batch_size, profile.batch_size);
  EXPECT_LT(1.5 * profile.forward_ms, profile.compute_ms())
      << "most of backward has two products for one of forward";
}

TEST_P(ShippedProfile, CanBePlannedByEveryPolicy) {
  const AllReduceProblem problem = problem_of(profile, 8, {128, 256, 512, 1024, 2048, 4096});
  EXPECT_TRUE(violated_assumptions(problem).empty());
  for (const AllReducePolicy& policy : all_reduce_policies()) {
    SCOPED_TRACE(policy.name);
    const AllReducePlan plan = policy.plan(problem);
    EXPECT_NO_THROW(require_each_layer_once(profile.layers, plan.groups));
    EXPECT_GE(plan.predicted.backward_ms, profile.compute_ms() * (1 - 1e-9));
    if (policy.name == "libra") {
      EXPECT_LE(plan.groups.size(), 10U);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Networks, ShippedProfile,
                         ::testing::Values(Shipped{"xception", 22'855'952, 115, 32},
                                           Shipped{"resnet152", 60'192'808, 311, 32},
                                           Shipped{"vgg16", 138'357'544, 16, 128},
                                           Shipped{"bert-base", 110'106'428, 80, 32}),
                         [](const auto& info) { return testing::test_name(info.param.name); });

}  // namespace
}  // namespace tandem
