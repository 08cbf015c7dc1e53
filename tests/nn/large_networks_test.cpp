// The networks of the papers: their sizes, and what they make of small inputs.
#include <gtest/gtest.h>

#include <tandem/nn/models/bert.h>
#include <tandem/nn/models/deep_resnet.h>
#include <tandem/nn/models/dlrm.h>
#include <tandem/nn/models/gpt2.h>
#include <tandem/nn/models/inception_v4.h>
#include <tandem/nn/models/mobilenet_v3.h>
#include <tandem/nn/models/network_config.h>
#include <tandem/nn/models/networks.h>
#include <tandem/nn/models/residual_lstm_net.h>
#include <tandem/nn/models/transformer.h>
#include <tandem/nn/models/vgg.h>
#include <tandem/nn/models/vit.h>
#include <tandem/nn/models/whole_networks.h>
#include <tandem/nn/models/xception.h>
#include <tandem/nn/summary.h>
#include <tandem/ops/eager.h>

#include "expect_error.h"

namespace tandem::testing {
using namespace nn;
using namespace engine;
namespace {

std::int64_t parameters(ModuleBase& module) {
  std::int64_t count = 0;
  for (const auto& [path, p] : module.named_parameters())
    if (!p->buffer) count += p->tensor.elements();
  return count;
}

// As torchvision and transformers count them.
TEST(LargeNetworks, HaveTheParameterCountsOfTheOriginals) {
  for (const auto& [depth, count] :
       {std::pair{18, 11'689'512}, {50, 25'557'032}, {101, 44'549'160}, {152, 60'192'808}}) {
    DeepResNet net({.depth = depth});
    EXPECT_EQ(count, parameters(net)) << depth;
  }
  Vgg16 vgg({.classes = 1000, .cells = 7});
  EXPECT_EQ(138'357'544, parameters(vgg));
  Vit b16, small({.width = 640, .hidden = 2560, .heads = 10});
  EXPECT_EQ(86'567'656, parameters(b16));
  EXPECT_EQ(60'343'400, parameters(small));
  MobileNetV3 mobile;
  EXPECT_EQ(5'483'032, parameters(mobile));
  Xception xception;
  EXPECT_EQ(22'855'952, parameters(xception));
  InceptionV4 inception;
  EXPECT_EQ(42'679'816, parameters(inception));
  Gpt2 gpt2;
  EXPECT_EQ(124'439'808, parameters(gpt2));
  Bert bert;
  EXPECT_EQ(109'482'240, parameters(bert));
  BertForPretraining heads;
  EXPECT_EQ(110'106'428, parameters(heads));
  Transformer transformer({.words = 10});
  EXPECT_EQ(25'248'770, parameters(transformer) - 10 * 512) << "beside the embedding";
  ResidualLstmNet recurrent({.words = 10});
  EXPECT_EQ(37'794'818, parameters(recurrent) - 10 * 512) << "beside the embedding";
  Dlrm dlrm;
  EXPECT_EQ(39'155'841, parameters(dlrm));
}

Tensor ids(Shape shape, int words) {
  Tensor t = Tensor::empty({DType::i32, std::move(shape)});
  for (std::int64_t i = 0; i < t.elements(); ++i)
    t.as<std::int32_t>()[i] = static_cast<std::int32_t>(i * 7 % words);
  return t;
}

TEST(LargeNetworks, GiveOneLogitPerClass) {
  for (const int depth : {18, 50}) {
    DeepResNet net({.depth = depth, .classes = 7, .width = 4});
    net.initialize(1);
    for (const std::int64_t side : {32, 64})
      EXPECT_EQ((Shape{2, 7}), net(Tensor::full({DType::f32, {2, side, side, 3}}, 0.5)).shape());
  }
  Vit vit({.image = 32,
           .patch = 8,
           .classes = 7,
           .width = 24,
           .hidden = 40,
           .depth = 2,
           .heads = 3,
           .dropout = 0.1});
  vit.initialize(1);
  EXPECT_EQ((Shape{2, 7}), vit(Tensor::full({DType::f32, {2, 32, 32, 3}}, 0.5)).shape());
}

// The small ones, since each is drawn.
TEST(LargeNetworks, AreMadeByNameForAPurpose) {
  EXPECT_EQ((std::vector<std::string>{"cifar", "imagenet", "text", "clicks"}), network_purposes());
  for (const auto& [name, purpose, scores] : {std::tuple("resnet20", "cifar", Shape{2, 10}),
                                              {"resnet18", "imagenet", {2, 1000}},
                                              {"mobilenet_v3_large", "imagenet", {2, 1000}},
                                              {"transformer", "text", {2, 2}},
                                              {"residual_lstm", "text", {2, 2}},
                                              {"dlrm", "clicks", {2, 1}}}) {
    const WholeNetwork net = make_network(name, purpose, 2);
    net.module->initialize(1);
    std::vector<TensorType> types;
    for (const NetworkInput& input : net.inputs) types.push_back(input.type);
    const Graph g = traced_forward(net.forward, types);
    EXPECT_EQ(scores, g.type(g.nodes().back().inputs[0]).shape) << name;
  }
  EXPECT_EQ(10u, network_names("cifar").size());
  EXPECT_EQ(10u, network_names("imagenet").size());
  expect_error([] { make_network("gpt2", "imagenet", 1); }, {"'gpt2'", "imagenet", "vit_b_16"});
  expect_error([] { make_network("gpt2", "speech", 1); }, {"'speech'", "clicks"});
}

TEST(LargeNetworks, ImageNetworksTakeTheirImagesAndSmallerOnes) {
  MobileNetV3 mobile({.classes = 7, .width = 0.25});
  mobile.initialize(1);
  Xception xception({.classes = 7, .width = 4, .middle = 1});
  xception.initialize(1);
  for (const std::int64_t side : {33, 64}) {
    const Tensor images = Tensor::full({DType::f32, {2, side, side, 3}}, 0.5);
    EXPECT_EQ((Shape{2, 7}), mobile(images).shape());
    EXPECT_EQ((Shape{2, 7}), xception(images).shape());
  }
  InceptionV4 inception({.classes = 7, .width = 4, .blocks_a = 1, .blocks_b = 1, .blocks_c = 1});
  inception.initialize(1);
  EXPECT_EQ((Shape{2, 7}), inception(Tensor::full({DType::f32, {2, 75, 75, 3}}, 0.5)).shape());
  InceptionV4 padded(
      {.classes = 7, .width = 4, .blocks_a = 1, .blocks_b = 1, .blocks_c = 1, .keeps_size = true});
  padded.initialize(1);
  EXPECT_EQ((Shape{2, 7}), padded(Tensor::full({DType::f32, {2, 32, 32, 3}}, 0.5)).shape());
  expect_error([&] { inception(Tensor::full({DType::f32, {2, 32, 32, 3}}, 0.5)); }, {"features"});
}

TEST(LargeNetworks, ATransformerClassifiesTexts) {
  Transformer net({.words = 50,
                   .positions = 12,
                   .classes = 3,
                   .width = 24,
                   .hidden = 40,
                   .encoders = 2,
                   .decoders = 2,
                   .heads = 3});
  net.initialize(1);
  net.eval();
  const auto scores = net(ids({2, 9}, 50));
  EXPECT_EQ((Shape{2, 3}), scores.shape());
  EXPECT_NE(scores.values(), net(ids({2, 9}, 49)).values());
  expect_error([&] { net(ids({1, 13}, 50)); }, {"at most 12 positions"});
}

TEST(LargeNetworks, AResidualLstmClassifiesTexts) {
  ResidualLstmNet net({.words = 50, .classes = 3, .width = 6, .cells = 10, .layers = 2});
  net.initialize(1);
  const auto scores = net(ids({2, 9}, 50));
  EXPECT_EQ((Shape{2, 3}), scores.shape());
  EXPECT_NE(scores.values(), net(ids({2, 9}, 49)).values());
}

// With layers that pass everything on, the result is the sum of the numbers' vector and of all products.
TEST(LargeNetworks, ADlrmMultipliesEachPairOfVectors) {
  Dlrm net({.numbers = 2, .rows = {3, 4}, .width = 2, .bottom = {}, .top = {}});
  net.initialize(1);
  StateDict state = net.state();
  const auto set = [&](const std::string& path, const std::vector<double>& values) {
    Tensor& t = state.at(path);
    t = Tensor::from(values, t.shape());
  };
  set("bottom.0.weight", {1, 0, 0, 1});
  set("bottom.0.bias", {0, 0});
  set("table0", {1, 2, 3, 4, 5, 6});
  set("table1", {1, 0, 0, 1, 2, 2, 3, 0});
  set("top.0.weight", {1, 1, 100, 10, 1});
  set("top.0.bias", {0});
  net.load(state);
  const Tensor numbers = Tensor::from(std::vector<double>{2, 3, 1, 1}, {2, 2});
  const Tensor categories = Tensor::from(std::vector<std::int32_t>{1, 2, 0, -1}, {2, 2, 1});
  // (2,3), (3,4), (2,2): products 18, 10, 14. (1,1), (1,2), none: 3, 0, 0.
  EXPECT_EQ((std::vector<double>{5 + 1800 + 100 + 14, 2 + 300}), net(Clicks{numbers, categories}).values());
  const Tensor wrong = Tensor::from(std::vector<std::int32_t>{1, 2, 0, 4}, {2, 2, 1});
  expect_error(
      [&] {
        net(Clicks{numbers, wrong}).values();
      },
      {"id 4 of sample 1, table 1, place 0", "−1 to 3"});
}

TEST(LargeNetworks, AGpt2SeesNoLaterWord) {
  Gpt2 net({.words = 50, .positions = 12, .width = 24, .depth = 2, .heads = 3});
  net.initialize(1);
  net.eval();
  const Tensor text = ids({1, 9}, 50);
  Tensor changed = ids({1, 9}, 50);
  changed.as<std::int32_t>()[6] = 3;
  const auto a = net(text).values(), b = net(changed).values();
  ASSERT_EQ(9u * 50, a.size());
  for (std::size_t i = 0; i < 6 * 50; ++i) EXPECT_EQ(a[i], b[i]);
  EXPECT_NE(a[6 * 50], b[6 * 50]);
  EXPECT_NE(a[8 * 50], b[8 * 50]);
  expect_error([&] { net(ids({1, 13}, 50)); }, {"at most 12 positions", "i32[1, 13]"});
}

TEST(LargeNetworks, ABertIgnoresPadding) {
  const BertOptions options{.words = 50, .positions = 12, .width = 24, .hidden = 40, .depth = 2, .heads = 3};
  BertForPretraining net(options);
  net.initialize(1);
  net.eval();
  const Tensor mask =
      Tensor::from(std::vector<double>{1, 1, 1, 1, 0, 0, 1, 1, 1, 1, 1, 0}, {2, 6}, DType::b8);
  const Tensor text = ids({2, 6}, 50);
  Tensor changed = ids({2, 6}, 50);
  changed.as<std::int32_t>()[5] = 3;
  const BertScores a = net({.ids = text, .mask = mask}), b = net({.ids = changed, .mask = mask});
  EXPECT_EQ((Shape{2, 6, 50}), a.words.shape());
  EXPECT_EQ((Shape{2, 2}), a.follows.shape());
  EXPECT_EQ(a.follows.values(), b.follows.values());
  EXPECT_NE(a.follows.values(), net({.ids = changed}).follows.values());
  BertClassifier classifier(3, options);
  classifier.initialize(1);
  EXPECT_EQ((Shape{2, 3}), classifier({.ids = text}).shape());
}

TEST(LargeNetworks, HaveTheDropoutsOfTheirConfigs) {
  const auto config = [](const char* text) { return engine::JsonInput::parse("config", text); };
  const Gpt2Options gpt2 =
      gpt2_options(config(R"({"resid_pdrop": 0.3, "embd_pdrop": 0, "attn_pdrop": 0.2})"));
  EXPECT_EQ(0.3, gpt2.dropout);
  EXPECT_EQ(0, gpt2.embedding_dropout);
  EXPECT_EQ(0.2, gpt2.attention_dropout);
  const BertOptions bert =
      bert_options(config(R"({"hidden_dropout_prob": 0.3, "classifier_dropout": null})"));
  EXPECT_EQ(0.3, bert.dropout);
  EXPECT_EQ(0.1, bert.attention_dropout);
  EXPECT_EQ(0.3, bert.head_dropout);
  EXPECT_EQ(0.5, bert_options(config(R"({"classifier_dropout": 0.5})")).head_dropout);
}

TEST(LargeNetworks, RefuseSizesThatDoNotFit) {
  expect_error([] { DeepResNet net({.depth = 20}); }, {"depth 20", "18, 34, 50, 101, or 152"});
  expect_error([] { Vit net({.image = 30}); }, {"16 × 16", "30 × 30"});
  expect_error([] { Vit net({.heads = 7}); }, {"a ViT's 7 heads", "768"});
  expect_error([] { Bert net({.heads = 7}); }, {"a BERT's 7 heads", "768"});
  expect_error([] { Transformer net({.heads = 7}); }, {"a Transformer's 7 heads", "512"});
  Vit vit({.image = 32, .patch = 8, .width = 8, .hidden = 8, .depth = 1, .heads = 1});
  vit.initialize(1);
  expect_error([&] { vit(Tensor::zeros({DType::f32, {1, 40, 32, 3}})); }, {"32 × 32", "f32[1, 40, 32, 3]"});
}

// The module and the numbers are those where the image has become too small.
TEST(LargeNetworks, RefuseImagesThatAreTooSmall) {
  const auto refused = [](Module& net, std::int64_t side, const std::vector<std::string>& words) {
    net.initialize(1);
    expect_error([&] { net(Tensor::zeros({DType::f32, {1, side, side, 3}})); }, words);
  };
  Vgg16 vgg({.width = 4, .hidden = 8});
  refused(vgg, 31, {"features: max_pool2d(f32[1, 1, 1, 32])", "spans 2 pixels", "does not fit into 1"});
  Xception xception({.width = 2, .middle = 1});
  refused(xception, 5, {"conv2: conv2d(f32[1, 2, 2, 2]", "spans 3 pixels", "does not fit into 2"});
  InceptionV4 inception({.width = 6, .blocks_a = 1, .blocks_b = 1, .blocks_c = 1});
  refused(inception, 74, {"features.", "spans 3 pixels", "does not fit into 2"});
}

}  // namespace
}  // namespace tandem::testing
