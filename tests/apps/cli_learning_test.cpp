// Every network learns with train_cifar's defaults.
#include <numeric>

#include <fmt/format.h>

#include "cli.h"

namespace tandem::testing {
namespace {

struct Case {
  std::string flags;
  int steps;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.flags; }

class CliLearning : public Cli, public ::testing::WithParamInterface<Case> {};

// Ten classes that are guessed give a loss of ln 10 = 2.303.
TEST_P(CliLearning, LossFallsBelowGuessing) {
  const Ended e = run(fmt::format("{}/train_cifar {} --synthetic-test 100 --steps {} --output {}", TANDEM_BIN,
                                  GetParam().flags, GetParam().steps, file("run")));
  ASSERT_EQ(0, e.status) << e.err;
  std::vector<double> losses;
  for (const nlohmann::json& step : metrics("run"))
    if (step.contains("loss")) losses.push_back(step["loss"].get<double>());
  ASSERT_EQ(static_cast<std::size_t>(GetParam().steps), losses.size());
  EXPECT_LT(std::accumulate(losses.end() - 10, losses.end(), 0.0) / 10, 2.25);
}

INSTANTIATE_TEST_SUITE_P(Networks, CliLearning,
                         ::testing::Values(Case{"--arch mlp", 79}, Case{"--arch mlp -b 32", 300},
                                           Case{"", 79}, Case{"-b 32", 300}, Case{"--opt adam", 79},
                                           Case{"--arch mlp-residual", 79}, Case{"--arch convnet", 40},
                                           Case{"--arch resnet20", 30}, Case{"--arch resnet32", 30},
                                           Case{"--arch resnet56", 30}, Case{"--arch vgg16", 60},
                                           Case{"--arch snn", 60}));

}  // namespace
}  // namespace tandem::testing
