// Initializers, and the networks for CIFAR: sizes, names, and published properties.
#include <cmath>
#include <cstdio>
#include <numeric>
#include <sstream>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <tandem/core/base/error.h>
#include <tandem/core/graph/trace.h>
#include <tandem/nn/layers.h>
#include <tandem/nn/models/networks.h>
#include <tandem/nn/models/resnet.h>
#include <tandem/nn/models/snn.h>
#include <tandem/nn/summary.h>
#include <tandem/ops/eager.h>
#include <tandem/ops/init.h>
#include <tandem/ops/pointwise.h>

namespace tandem::nn {
namespace {

struct Moments {
  double mean = 0, variance = 0, largest = 0;
};

Moments moments(const Tensor& t) {
  const auto values = t.values();
  Moments m;
  for (double v : values) m.mean += v / static_cast<double>(values.size());
  for (double v : values) {
    m.variance += (v - m.mean) * (v - m.mean) / static_cast<double>(values.size());
    m.largest = std::max(m.largest, std::fabs(v));
  }
  return m;
}

TEST(Initializers, HaveTheVarianceThatFollowsFromTheFans) {
  const Fans fans{300, 200};
  const TensorType type{DType::f32, {200, 300}};
  const struct {
    const char* name;
    Initializer init;
    double variance, largest;  // 0: without a bound
  } cases[] = {{"kaiming_uniform", kaiming_uniform(), 2.0 / 300, std::sqrt(6.0 / 300)},
               {"kaiming_normal", kaiming_normal(), 2.0 / 300, 0},
               {"xavier_uniform", xavier_uniform(), 2.0 / 500, std::sqrt(6.0 / 500)},
               {"xavier_normal", xavier_normal(2), 4 * 2.0 / 500, 0},
               {"lecun_normal", lecun_normal(), 1.0 / 300, 0},
               {"truncated_normal", truncated_normal(0.02), 0.0004 * 0.7737,
                0.04},  // of a normal distribution that is cut at 2
               {"default_uniform", default_uniform(), 1.0 / 900, 1 / std::sqrt(300.0)}};
  for (const auto& c : cases) {
    const Tensor t = c.init(type, fans, "a.weight", 1);
    const Moments m = moments(t);
    EXPECT_NEAR(m.mean, 0, 4 * std::sqrt(c.variance / 60000)) << c.name;
    EXPECT_NEAR(m.variance, c.variance, 0.03 * c.variance) << c.name;
    if (c.largest > 0) {
      EXPECT_LE(m.largest, c.largest * (1 + 1e-6)) << c.name;
    }
    EXPECT_EQ(t.values(), c.init(type, fans, "a.weight", 1).values()) << c.name;
    EXPECT_NE(t.values(), c.init(type, fans, "b.weight", 1).values()) << c.name << " must depend on the path";
    EXPECT_NE(t.values(), c.init(type, fans, "a.weight", 2).values()) << c.name << " must depend on the seed";
  }
  for (const auto& init : {kaiming_uniform(), kaiming_normal(), xavier_uniform(), xavier_normal(),
                           lecun_normal(), default_uniform()})
    EXPECT_THROW(init(type, {0, 0}, "a.weight", 1), Error);
}

TEST(Networks, HaveTheParameterCountsOfTheirPapers) {
  const std::map<std::string, std::int64_t> expected{
      {"resnet20", 269'722},  // 0.27, 0.46, 0.85 M: He et al. 2016, table 6
      {"resnet32", 464'154},
      {"resnet56", 853'018},
      {"vgg16", 33'638'218}};
  for (const auto& [name, count] : expected) {
    const auto net = make_network(name, 10);
    std::int64_t trained = 0;
    for (const auto& [path, p] : net->named_parameters())
      if (!p->buffer) trained += p->tensor.elements();
    EXPECT_EQ(trained, count) << name;
  }
  EXPECT_THROW(make_network("resnet21", 10), Error);
  EXPECT_THROW(ResNet({.depth = 21}), Error);
}

TEST(Networks, SummaryAddsUp) {
  const auto net = make_network("resnet20", 10);
  net->initialize(1);
  const std::string text = summary(*net, {DType::f32, {1, 32, 32, 3}});
  EXPECT_NE(text.find("layer2.0.conv1"), std::string::npos) << text;
  EXPECT_NE(text.find("f32[1, 16, 16, 32]"), std::string::npos) << text;
  const std::string total = text.substr(text.rfind("total"));
  EXPECT_NE(total.find("269722"), std::string::npos) << total;
  double trained = 0, kept = 0, mflop = 0;
  ASSERT_EQ(std::sscanf(total.c_str(), "total %lf %lf %lf", &trained, &kept, &mflop), 3) << total;
  EXPECT_EQ(269722, trained);
  EXPECT_EQ(1376, kept) << "running means and variances of 688 channels";
  EXPECT_NEAR(mflop, 2 * 40.8, 2) << "40.8 M multiply-adds, plus norms and sums";
}

TEST(Networks, SummaryListsOutputsAndFrozenParameters) {
  struct Net : Module {
    Linear first{*this, "first", {.in = 4, .out = 64}}, head{*this, "head", {.in = 64, .out = 2}};
    BatchNorm norm{*this, "norm", {.channels = 64}};
    Tensor forward(const Tensor& x) override { return head(relu(norm(first(x)))); }
  } net;
  net.initialize(1);
  for (auto& [path, p] : net.named_parameters())
    if (path.starts_with("first")) p->tensor.requires_grad(false);
  const std::string text = summary(net, {DType::f32, {1, 4}});
  const auto line = [&](const std::string& module) {
    std::istringstream words(text.substr(text.find("\n" + module)));
    std::string name, shape, more;
    words >> name >> shape >> more;
    std::int64_t trained = -1, kept = -1;
    words >> trained >> kept;
    return fmt::format("{} {} {} {}", shape, more, trained, kept);
  };
  EXPECT_EQ("f32[1, 64] 0 320", line("first")) << text;
  EXPECT_EQ("f32[1, 64] 128 128", line("norm")) << "the type must not be that of the statistics\n" << text;
  EXPECT_EQ("f32[1, 2] 130 0", line("head")) << text;
}

TEST(Networks, NameParametersAsTorchvisionDoes) {
  const auto has = [](const char* network, const char* path) {
    for (const auto& [name, p] : make_network(network, 10)->named_parameters())
      if (name == path) return true;
    return false;
  };
  EXPECT_TRUE(has("resnet20", "layer3.2.conv2.weight"));
  EXPECT_TRUE(has("resnet20", "layer1.0.bn1.running_mean"));
  EXPECT_TRUE(has("resnet20", "fc.bias"));
  EXPECT_TRUE(has("vgg16", "features.28.weight"));
  EXPECT_TRUE(has("vgg16", "classifier.6.bias"));
}

TEST(Networks, GiveOneLogitPerClass) {
  const NoGrad no_grad;
  for (const std::string& name : network_names()) {
    if (name == "vgg16" || name == "snn") continue;  // large: bench_step shows them
    const auto net = make_network(name, 7);
    net->initialize(3);
    EXPECT_EQ((*net)(Tensor::full({DType::f32, {2, 32, 32, 3}}, 0.5)).shape(), (Shape{2, 7})) << name;
  }
}

// Mean 0 and variance 1 pass through any number of layers.
TEST(Networks, AnSnnNormalizesItself) {
  Snn net({.in = 256, .width = 256, .classes = 256, .layers = 24});
  net.initialize(5);
  const NoGrad no_grad;
  const Moments m = moments(net(init::normal({DType::f32, {64, 256}}, 0, 1, "x", 1)));
  EXPECT_NEAR(m.mean, 0, 0.1);
  EXPECT_NEAR(m.variance, 1, 0.3);
}

}  // namespace
}  // namespace tandem::nn
