// The papers' networks give what torchvision, timm, and transformers give: scores, loss, and the norm of
// every gradient. Weights follow a formula that tests/golden/make_large_networks.py has, too, so no file
// holds them.
#include <cmath>
#include <cstdint>
#include <string>

#include <gtest/gtest.h>

#include <tandem/nn/models/bert.h>
#include <tandem/nn/models/deep_resnet.h>
#include <tandem/nn/models/gpt2.h>
#include <tandem/nn/models/inception_v4.h>
#include <tandem/nn/models/mobilenet_v3.h>
#include <tandem/nn/models/vit.h>
#include <tandem/nn/models/xception.h>
#include <tandem/nn/torch_layout.h>
#include <tandem/ops/eager.h>
#include <tandem/ops/loss.h>
#include <tandem/ops/shape.h>

#include "test_files.h"

namespace tandem::testing {
namespace {

using nlohmann::json;

double pattern(std::int64_t i, std::int64_t offset) {
  return static_cast<double>((i * 7919 + 13 * offset) % 997 - 498) / 498;
}

// Element i of a parameter in PyTorch's layout.
double weight(const std::string& name, const Shape& shape, std::int64_t elements, std::int64_t i) {
  const double p = pattern(i, std::ssize(name));
  if (name.ends_with("running_var")) return 1 + 0.5 * p;
  if (shape.size() == 1 && name.ends_with("weight")) return 1 + 0.1 * p;
  if (shape.size() == 1) return 0.1 * p;
  return p * std::sqrt(6 / (static_cast<double>(elements) / static_cast<double>(shape[0])));
}

Tensor image(std::int64_t side) {
  Tensor x = Tensor::empty({DType::f32, {2, side, side, 3}});
  for (std::int64_t i = 0; i < x.elements(); ++i) x.as<float>()[i] = static_cast<float>(pattern(i, 1));
  return x;
}

// The scores of all samples agree in f32, by their largest; each norm by the largest of all.
void expect_original(const std::string& name, nn::ModuleBase& net, const std::vector<std::int32_t>& labels,
                     const std::function<Tensor()>& scores_of) {
  const json golden = read_json(TANDEM_SOURCE "/tests/golden/large_networks.json").at("networks").at(name);
  StateDict state;
  for (const auto& [path, p] : net.named_parameters()) {
    const TensorType type = nn::torch_type(*p);
    Tensor value = Tensor::empty(type);
    for (std::int64_t i = 0; i < value.elements(); ++i)
      value.as<float>()[i] = static_cast<float>(weight(path, type.shape, value.elements(), i));
    state[path] = nn::from_torch(*p, value);
  }
  net.load(state);
  net.eval();
  const Tensor scores = scores_of();
  const Tensor loss = cross_entropy(scores, Tensor::from(labels, {std::ssize(labels)}));
  loss.backward();

  const std::vector<double> values = scores.values(), expected = golden.at("scores");
  double largest = 0;
  for (const double e : expected) largest = std::max(largest, std::abs(e));
  const std::size_t step = std::max<std::size_t>(1, values.size() / 40);
  ASSERT_EQ((values.size() + step - 1) / step, expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(expected[i], values[i * step], 1e-4 * largest) << "score " << i * step;
  const double expected_loss = golden.at("loss");
  EXPECT_NEAR(expected_loss, loss.item(), 1e-4 * std::max(1.0, expected_loss));
  std::size_t gradients = 0;
  for (const auto& [path, p] : net.named_parameters()) {
    if (p->buffer) continue;
    ASSERT_TRUE(golden.at("norms").contains(path)) << path;
    const double norm = golden.at("norms").at(path);
    double sum = 0;
    for (const double g : p->tensor.grad().values()) sum += g * g;
    EXPECT_NEAR(norm, std::sqrt(sum), 1e-3 * norm + 1e-6 * largest) << path;
    ++gradients;
  }
  EXPECT_EQ(golden.at("norms").size(), gradients);
}

void expect_original(const std::string& name, nn::Module& net, const Tensor& input,
                     const std::vector<std::int32_t>& labels) {
  expect_original(name, net, labels, [&] { return net(input); });
}

// Of 50, without word 0, which transformers' BERT does not train.
Tensor words() {
  Tensor ids = Tensor::empty({DType::i32, {2, 9}});
  for (std::int32_t i = 0; i < 18; ++i) ids.as<std::int32_t>()[i] = 1 + i * 7 % 49;
  return ids;
}

TEST(GoldenLargeNetworks, ResNetsAreTorchvisions) {
  nn::DeepResNet basic({.depth = 18}), bottlenecks({.depth = 50});
  expect_original("resnet18", basic, image(64), {1, 999});
  expect_original("resnet50", bottlenecks, image(64), {1, 999});
}
TEST(GoldenLargeNetworks, MobileNetV3IsTorchvisions) {
  nn::MobileNetV3 net;
  expect_original("mobilenet_v3_large", net, image(64), {1, 999});
}
TEST(GoldenLargeNetworks, XceptionIsTimms) {
  nn::Xception net;
  expect_original("xception", net, image(96), {1, 999});
}
TEST(GoldenLargeNetworks, InceptionV4IsTimms) {
  nn::InceptionV4 net;
  expect_original("inception_v4", net, image(96), {1, 999});
}
TEST(GoldenLargeNetworks, VitIsTorchvisions) {
  nn::Vit net({.image = 32, .patch = 8, .classes = 7, .width = 24, .hidden = 40, .depth = 2, .heads = 3});
  expect_original("vit", net, image(32), {1, 6});
}

// The scores of the word after the last.
TEST(GoldenLargeNetworks, Gpt2IsTransformers) {
  nn::Gpt2 net({.words = 50, .positions = 12, .width = 24, .depth = 2, .heads = 3});
  expect_original("gpt2", net, {1, 49}, [&] { return reshape(slice(net(words()), 1, 8, 9), {2, 50}); });
}

// The second text has six words; in both, the fifth begins another sentence.
TEST(GoldenLargeNetworks, BertIsTransformers) {
  nn::BertClassifier net(3,
                         {.words = 50, .positions = 12, .width = 24, .hidden = 40, .depth = 2, .heads = 3});
  std::vector<double> is_word, sentence;
  for (int i = 0; i < 18; ++i) {
    is_word.push_back(i < 9 + 6 ? 1 : 0);
    sentence.push_back(i % 9 >= 4 ? 1 : 0);
  }
  const Tensor mask = Tensor::from(is_word, {2, 9}, DType::b8),
               kinds = Tensor::from(sentence, {2, 9}, DType::i32);
  expect_original("bert", net, {1, 2}, [&] { return net(nn::BertInput{words(), mask, kinds}); });
}

}  // namespace
}  // namespace tandem::testing
