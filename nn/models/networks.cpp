#include <tandem/nn/models/networks.h>

#include <array>
#include <utility>

#include <tandem/core/base/contains.h>
#include <tandem/core/base/named.h>
#include <tandem/nn/models/bert.h>
#include <tandem/nn/models/convnet.h>
#include <tandem/nn/models/deep_resnet.h>
#include <tandem/nn/models/dlrm.h>
#include <tandem/nn/models/gpt2.h>
#include <tandem/nn/models/inception_v4.h>
#include <tandem/nn/models/mlp.h>
#include <tandem/nn/models/mobilenet_v3.h>
#include <tandem/nn/models/residual_lstm_net.h>
#include <tandem/nn/models/resnet.h>
#include <tandem/nn/models/snn.h>
#include <tandem/nn/models/transformer.h>
#include <tandem/nn/models/vgg.h>
#include <tandem/nn/models/vit.h>
#include <tandem/nn/models/xception.h>
#include <tandem/ops/shape.h>

namespace tandem::nn {
namespace {

using Made = std::unique_ptr<Module>;

struct Network {
  const char* name;
  Made (*make)(int classes);
};

template <class Net, int blocks> Made mlp(int classes) {
  return std::make_unique<Net>(
      MlpOptions{.hidden = 256, .classes = classes, .blocks = blocks, .image = {32, 32, 3}});
}
template <int depth> Made resnet(int classes) {
  return std::make_unique<ResNet>(ResNetOptions{.depth = depth, .classes = classes});
}
Made snn(int classes) { return std::make_unique<Snn>(SnnOptions{.classes = classes, .image = {32, 32, 3}}); }

constexpr std::array kNetworks{
    Network{"mlp", mlp<Mlp, 2>},
    Network{"mlp-residual", mlp<MlpResidual, 4>},
    Network{"convnet", [](int c) -> Made { return std::make_unique<ConvNet>(ConvNetOptions{.classes = c}); }},
    Network{"resnet20", resnet<20>},
    Network{"resnet32", resnet<32>},
    Network{"resnet56", resnet<56>},
    Network{"vgg16", [](int c) -> Made { return std::make_unique<Vgg16>(Vgg16Options{.classes = c}); }},
    Network{"snn", snn},
};

struct Purpose {
  const char* name;
  const char* network;
  WholeNetwork (*make)(std::int64_t samples);
};

WholeNetwork of_images(Made net, std::int64_t side, std::int64_t samples) {
  Module& module = *net;
  return {std::move(net), {{DType::f32, {samples, side, side, 3}}}, [&module](const Tensors& in) {
            return module(in[0]);
          }};
}
WholeNetwork of_words(Made net, std::int64_t words, std::int64_t samples) {
  Module& module = *net;
  return {std::move(net), {{DType::i32, {samples, words}}}, [&module](const Tensors& in) {
            return module(in[0]);
          }};
}

template <int depth> WholeNetwork imagenet_resnet(std::int64_t samples) {
  return of_images(std::make_unique<DeepResNet>(DeepResNetOptions{.depth = depth}), 224, samples);
}
template <class Net, int side> WholeNetwork imagenet(std::int64_t samples) {
  return of_images(std::make_unique<Net>(), side, samples);
}

// Words, the positions that are words, and which of two texts each is from.
WholeNetwork bert(std::int64_t samples) {
  auto net = std::make_unique<BertForPretraining>();
  BertForPretraining& module = *net;
  const Shape shape{samples, 128};
  return {
      std::move(net), {{DType::i32, shape}, {DType::b8, shape}, {DType::i32, shape}}, [&](const Tensors& in) {
        const BertScores scores = module(BertInput{in[0], in[1], in[2]});
        return concat({flatten(scores.words), scores.follows}, 1);
      }};
}

WholeNetwork dlrm(std::int64_t samples) {
  const DlrmOptions options;
  auto net = std::make_unique<Dlrm>(options);
  Dlrm& module = *net;
  return {std::move(net),
          {{DType::f32, {samples, options.numbers}}, {DType::i32, {samples, std::ssize(options.rows), 1}}},
          [&module](const Tensors& in) {
            return module(Clicks{in[0], in[1]});
          }};
}

constexpr const char* kCifar = "cifar";
constexpr std::int64_t kCifarSide = 32;
constexpr int kCifarClasses = 10;

// The networks of the papers; for CIFAR also those of kNetworks.
constexpr std::array kPurposes{
    Purpose{kCifar, "resnet152",
            [](std::int64_t n) {
              return of_images(
                  std::make_unique<DeepResNet>(DeepResNetOptions{.depth = 152, .classes = kCifarClasses}),
                  kCifarSide, n);
            }},
    Purpose{kCifar, "inception_v4",
            [](std::int64_t n) {
              return of_images(std::make_unique<InceptionV4>(
                                   InceptionV4Options{.classes = kCifarClasses, .keeps_size = true}),
                               kCifarSide, n);
            }},
    Purpose{"imagenet", "vgg16",
            [](std::int64_t n) {
              return of_images(std::make_unique<Vgg16>(Vgg16Options{.classes = 1000, .cells = 7}), 224, n);
            }},
    Purpose{"imagenet", "resnet18", imagenet_resnet<18>},
    Purpose{"imagenet", "resnet50", imagenet_resnet<50>},
    Purpose{"imagenet", "resnet101", imagenet_resnet<101>},
    Purpose{"imagenet", "resnet152", imagenet_resnet<152>},
    Purpose{"imagenet", "xception", imagenet<Xception, 299>},
    Purpose{"imagenet", "inception_v4", imagenet<InceptionV4, 299>},
    Purpose{"imagenet", "mobilenet_v3_large", imagenet<MobileNetV3, 224>},
    Purpose{"imagenet", "vit_b_16", imagenet<Vit, 224>},
    Purpose{"imagenet", "vit_60m",
            [](std::int64_t n) {
              return of_images(std::make_unique<Vit>(VitOptions{.width = 640, .hidden = 2560, .heads = 10}),
                               224, n);
            }},
    Purpose{"text", "gpt2", [](std::int64_t n) { return of_words(std::make_unique<Gpt2>(), 128, n); }},
    Purpose{"text", "bert_base", bert},
    Purpose{"text", "transformer",
            [](std::int64_t n) { return of_words(std::make_unique<Transformer>(), 20, n); }},
    Purpose{"text", "residual_lstm",
            [](std::int64_t n) { return of_words(std::make_unique<ResidualLstmNet>(), 20, n); }},
    Purpose{"clicks", "dlrm", dlrm},
};

}  // namespace

std::vector<std::string> network_purposes() {
  std::vector<std::string> names;
  for (const Purpose& p : kPurposes)
    if (!engine::contains(names, p.name)) names.emplace_back(p.name);
  return names;
}

std::vector<std::string> network_names(const std::string& purpose) {
  std::vector<std::string> names;
  if (purpose == kCifar) names = network_names();
  for (const Purpose& p : kPurposes)
    if (p.name == purpose) names.emplace_back(p.network);
  if (names.empty()) engine::refuse_name(purpose, network_purposes(), "purpose");
  return names;
}

WholeNetwork make_network(const std::string& name, const std::string& purpose, std::int64_t samples) {
  const std::vector<std::string> names = network_names(purpose);
  for (const Purpose& p : kPurposes)
    if (p.name == purpose && p.network == name) return p.make(samples);
  if (!engine::contains(names, name)) engine::refuse_name(name, names, "network for " + purpose);
  return of_images(make_network(name, kCifarClasses), kCifarSide, samples);
}

std::vector<std::string> network_names() { return engine::names_of(kNetworks); }

std::unique_ptr<Module> make_network(const std::string& name, int classes) {
  return engine::row_named(name, kNetworks, "network").make(classes);
}

}  // namespace tandem::nn
