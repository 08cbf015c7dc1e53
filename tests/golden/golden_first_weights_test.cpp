// The papers' networks draw their first weights from the distributions of the originals, parameter by
// parameter: the same standard deviation, and the same kind of distribution by its largest magnitude.
#include <algorithm>
#include <cmath>
#include <string>

#include <gtest/gtest.h>

#include <tandem/nn/models/bert.h>
#include <tandem/nn/models/whole_networks.h>
#include <tandem/nn/torch_layout.h>
#include <tandem/nn/weights.h>

#include "test_files.h"

namespace tandem::testing {
namespace {

using nlohmann::json;

struct Spread {
  double mean, deviation, largest;
};

Spread spread_of(const Tensor& t) {
  double sum = 0, squares = 0, largest = 0;
  const float* x = t.as<float>();
  for (std::int64_t i = 0; i < t.elements(); ++i) {
    sum += x[i];
    squares += double{x[i]} * x[i];
    largest = std::max(largest, std::abs(double{x[i]}));
  }
  const double n = static_cast<double>(t.elements()), mean = sum / n;
  return {mean, std::sqrt(std::max(0.0, squares / n - mean * mean)), largest};
}

// What a distribution is, by its largest of many values.
std::string kind_of(const Spread& s) {
  const double ratio = s.largest / s.deviation;
  return ratio < 1.8 ? "uniform" : ratio < 2.5 ? "normal up to two deviations" : "normal";
}

TEST(GoldenFirstWeights, HaveTheDistributionsOfTheOriginals) {
  const json golden = read_json(TANDEM_SOURCE "/tests/golden/first_weights.json");
  ASSERT_EQ(15u, golden.size());
  for (const auto& [name, network] : golden.items()) {
    const nn::WholeNetwork ours = nn::make_network(name, network.at("for"), 1);
    ours.module->initialize(1);
    const StateDict state = ours.module->state();
    const std::string library = network.at("library");  // of some there is none, and their names are Tandem's
    const auto layout = library.empty() ? nn::FileLayout() : nn::file_layout(*ours.module, library);
    const auto stored = nn::stored_tensors(*ours.module, layout);
    std::size_t compared = 0;
    for (const auto& [key, spread] : network.at("parameters").items()) {
      const auto found = stored.find(key);
      if (found == stored.end()) continue;  // repeats another one, or is a constant of the library's
      ++compared;
      const Tensor t = nn::to_file(found->second, [&](const std::string& path) { return state.at(path); });
      const Spread theirs{0, spread[0], spread[1]}, mine = spread_of(t);
      SCOPED_TRACE(name + " " + key);
      if (t.elements() == 1 && theirs.largest > 0) continue;  // one drawn number
      if (theirs.deviation < 1e-7) {
        EXPECT_LT(mine.deviation, 1e-7);
        EXPECT_NEAR(theirs.largest, mine.mean, 1e-6) << "a constant, 0 or above";
        continue;
      }
      const double n = static_cast<double>(t.elements());
      if (key != "positions") {  // are not drawn
        EXPECT_NEAR(0, mine.mean / theirs.deviation, 6 / std::sqrt(n));
      }
      EXPECT_NEAR(1, mine.deviation / theirs.deviation, 0.001 + 6 / std::sqrt(n));
      if (n >= 1000) {
        EXPECT_EQ(kind_of(theirs), kind_of(mine));
      }
    }
    EXPECT_EQ(stored.size(), compared) << name;
  }
}

// The heads have fewer classes. A parameter's bits depend on its path and the seed, not on the others.
TEST(GoldenFirstWeights, FormsForCifarHaveThoseForImageNet) {
  for (const auto& [name, head] : {std::pair("resnet152", "fc."), {"inception_v4", "last_linear."}}) {
    const nn::WholeNetwork small = nn::make_network(name, "cifar", 1),
                           large = nn::make_network(name, "imagenet", 1);
    small.module->initialize(1);
    large.module->initialize(1);
    const StateDict of_small = small.module->state(), of_large = large.module->state();
    ASSERT_EQ(of_large.size(), of_small.size());
    for (const auto& [path, t] : of_small) {
      SCOPED_TRACE(name + (" " + path));
      if (path == head + std::string("weight"))  // uniform up to 1/√inputs, of which there are as many
        EXPECT_NEAR(1, spread_of(t).deviation / spread_of(of_large.at(path)).deviation,
                    0.001 + 6 / std::sqrt(static_cast<double>(t.elements())));
      else if (path == head + std::string("bias"))
        EXPECT_LE(spread_of(t).largest,
                  1 / std::sqrt(static_cast<double>(of_large.at(head + std::string("weight")).size(1))));
      else
        EXPECT_EQ(of_large.at(path).values(), t.values());
    }
  }
}

TEST(GoldenFirstWeights, AClassifierOfTextsHasBertsHead) {
  nn::BertClassifier net(2);
  net.initialize(1);
  const StateDict state = net.state();
  const Spread weight = spread_of(state.at("classifier.weight"));
  EXPECT_NEAR(0.02, weight.deviation, 0.02 * 6 / std::sqrt(2 * 768));
  EXPECT_EQ("normal", kind_of(weight));
  EXPECT_EQ(0, spread_of(state.at("classifier.bias")).largest);
}

}  // namespace
}  // namespace tandem::testing
