#include <tandem/nn/models/whole_networks.h>

#include <array>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tandem/core/base/contains.h>
#include <tandem/core/base/named.h>
#include <tandem/core/graph/names.h>
#include <tandem/core/graph/trace.h>
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
#include <tandem/nn/models/xception.h>
#include <tandem/ops/loss.h>
#include <tandem/ops/pointwise.h>
#include <tandem/ops/shape.h>

namespace tandem::nn {
namespace {

using Config = std::optional<engine::JsonInput>;
constexpr std::int64_t kNoLabel = -100;  // positions that do not count in PyTorch's losses

NetworkInput input(const char* name, DType dtype, Shape shape, std::vector<std::int64_t> counts = {}) {
  return {name, {dtype, std::move(shape)}, std::move(counts)};
}
NetworkInput optional(NetworkInput input) {
  input.optional = true;
  return input;
}
NetworkInput without_some(NetworkInput labels) {
  labels.none = static_cast<std::int32_t>(kNoLabel);
  return labels;
}
NetworkInput labels_of(Shape shape, std::int64_t classes) {
  return without_some(input("labels", DType::i32, std::move(shape), {classes}));
}
Tensor mean_cross_entropy(const Tensor& logits, const Tensor& labels) {
  return cross_entropy(logits, labels, CrossEntropyOptions{.ignore_index = kNoLabel});
}

// A Module that makes scores (N, classes) of one input.
WholeNetwork classifier(std::unique_ptr<Module> net, NetworkInput input, std::int64_t classes) {
  Module& module = *net;
  const std::int64_t samples = input.type.shape[0];
  return {.module = std::move(net),
          .inputs = {std::move(input)},
          .forward = [&module](const Tensors& in) { return Tensors{module(in[0])}; },
          .outputs = {"logits"},
          .labels = {labels_of({samples}, classes)},
          .loss = [](const Tensors& out,
                     const Tensors& labels) { return mean_cross_entropy(out[0], labels[0]); }};
}
WholeNetwork of_images(std::unique_ptr<Module> net, std::int64_t side, std::int64_t samples,
                       std::int64_t classes, std::int64_t channels = 3) {
  NetworkInput images = input("images", DType::f32, {samples, side, side, channels});
  images.is_image = true;
  return classifier(std::move(net), std::move(images), classes);
}
NetworkInput words(std::int64_t samples, std::int64_t length, std::int64_t count) {
  return input("input_ids", DType::i32, {samples, length}, {count});
}

constexpr std::int64_t kClasses = 1000;  // of ImageNet
template <int depth> WholeNetwork imagenet_resnet(std::int64_t samples, const Config&) {
  return of_images(std::make_unique<DeepResNet>(DeepResNetOptions{.depth = depth}), 224, samples, kClasses);
}
template <class Net, int side> WholeNetwork imagenet(std::int64_t samples, const Config&) {
  return of_images(std::make_unique<Net>(), side, samples, kClasses);
}
WholeNetwork vit(const VitOptions& sizes, std::int64_t samples, const Config& config) {
  const VitOptions o = config ? vit_options(*config, sizes) : sizes;
  return of_images(std::make_unique<Vit>(o), o.image, samples, o.classes, o.channels);
}

// The words of a text follow each other: position t predicts word t+1.
WholeNetwork gpt2(std::int64_t samples, const Config& config) {
  const Gpt2Options o = config ? gpt2_options(*config) : Gpt2Options{};
  auto net = std::make_unique<Gpt2>(o);
  Module& module = *net;
  const std::int64_t length = std::min<std::int64_t>(128, o.positions);
  return {
      .module = std::move(net),
      .inputs = {words(samples, length, o.words)},
      .forward = [&module](const Tensors& in) { return Tensors{module(in[0])}; },
      .outputs = {"logits"},
      .labels = {labels_of({samples, length}, o.words)},
      .loss =
          [](const Tensors& out, const Tensors& labels) {
            const std::int64_t last = out[0].size(1) - 1;
            if (last == 0) throw Error("the loss of a text needs two words or more");
            if (const Shape texts{out[0].size(0), out[0].size(1)}; labels[0].shape() != texts)
              throw Error(fmt::format("labels of shape {} do not fit texts of shape {}: each word has one",
                                      to_string(labels[0].shape()), to_string(texts)));
            // The last position predicts nothing: its logits are not cut off, which would copy all
            // others.
            const Tensor none = Tensor::full({DType::i32, {labels[0].size(0), 1}}, kNoLabel);
            return mean_cross_entropy(out[0], concat({slice(labels[0], 1, 1, last + 1), none}, 1));
          }};
}

BertInput bert_input(const Tensors& in) { return {in[0], in[1], in[2]}; }
std::vector<NetworkInput> bert_inputs(std::int64_t samples, const BertOptions& o) {
  const Shape shape{samples, std::min<std::int64_t>(128, o.positions)};
  return {words(samples, shape[1], o.words), optional(input("attention_mask", DType::b8, shape)),
          optional(input("token_type_ids", DType::i32, shape, {o.kinds}))};
}

WholeNetwork bert(std::int64_t samples, const Config& config) {
  const BertOptions o = config ? bert_options(*config) : BertOptions{};
  if (config && is_classifier(*config)) {
    const std::int64_t classes = class_count(*config);
    auto net = std::make_unique<BertClassifier>(classes, o);
    BertClassifier& module = *net;
    return {.module = std::move(net),
            .inputs = bert_inputs(samples, o),
            .forward = [&module](const Tensors& in) { return Tensors{module(bert_input(in))}; },
            .outputs = {"logits"},
            .labels = {labels_of({samples}, classes)},
            .loss = [](const Tensors& out,
                       const Tensors& labels) { return mean_cross_entropy(out[0], labels[0]); }};
  }
  auto net = std::make_unique<BertForPretraining>(o);
  BertForPretraining& module = *net;
  std::vector<NetworkInput> inputs = bert_inputs(samples, o);
  const Shape shape = inputs[0].type.shape;
  return {.module = std::move(net),
          .inputs = std::move(inputs),
          .forward =
              [&module](const Tensors& in) {
                const BertScores scores = module(bert_input(in));
                return Tensors{scores.words, scores.follows};
              },
          .outputs = {"logits", "seq_relationship_logits"},
          .labels = {labels_of(shape, o.words),
                     without_some(input("next_sentence_label", DType::i32, {samples}, {2}))},
          .loss =
              [](const Tensors& out, const Tensors& labels) {
                return mean_cross_entropy(out[0], labels[0]) + mean_cross_entropy(out[1], labels[1]);
              }};
}

template <class Net, class Options> WholeNetwork of_texts(std::int64_t samples, const Config&) {
  const Options o;
  return classifier(std::make_unique<Net>(o), words(samples, 20, o.words), o.classes);
}

constexpr const char *kCifar = "cifar", *kImageNet = "imagenet", *kText = "text";
constexpr std::int64_t kCifarSide = 32;
constexpr int kCifarClasses = 10;

struct Purpose {
  const char* name;
  const char* network;
  WholeNetwork (*make)(std::int64_t samples, const Config& config);
  bool takes_config = false;
};

// The networks of the papers; for CIFAR also those of network_names().
constexpr std::array kPurposes{
    Purpose{kCifar, "resnet152",
            [](std::int64_t n, const Config&) {
              return of_images(
                  std::make_unique<DeepResNet>(DeepResNetOptions{.depth = 152, .classes = kCifarClasses}),
                  kCifarSide, n, kCifarClasses);
            }},
    Purpose{kCifar, "inception_v4",
            [](std::int64_t n, const Config&) {
              return of_images(std::make_unique<InceptionV4>(
                                   InceptionV4Options{.classes = kCifarClasses, .keeps_size = true}),
                               kCifarSide, n, kCifarClasses);
            }},
    Purpose{kImageNet, "vgg16",
            [](std::int64_t n, const Config&) {
              return of_images(std::make_unique<Vgg16>(Vgg16Options{
                                   .classes = kClasses, .cells = 7, .torchvision_weights = true}),
                               224, n, kClasses);
            }},
    Purpose{kImageNet, "resnet18", imagenet_resnet<18>},
    Purpose{kImageNet, "resnet50", imagenet_resnet<50>},
    Purpose{kImageNet, "resnet101", imagenet_resnet<101>},
    Purpose{kImageNet, "resnet152", imagenet_resnet<152>},
    Purpose{kImageNet, "xception", imagenet<Xception, 299>},
    Purpose{kImageNet, "inception_v4", imagenet<InceptionV4, 299>},
    Purpose{kImageNet, "mobilenet_v3_large", imagenet<MobileNetV3, 224>},
    Purpose{kImageNet, "vit_b_16", [](std::int64_t n, const Config& config) { return vit({}, n, config); },
            true},
    Purpose{kImageNet, "vit_60m",
            [](std::int64_t n, const Config& config) {
              return vit({.width = 640, .hidden = 2560, .heads = 10}, n, config);
            },
            true},
    Purpose{kText, "gpt2", gpt2, true},
    Purpose{kText, "bert_base", bert, true},
    Purpose{kText, "transformer", of_texts<Transformer, TransformerOptions>},
    Purpose{kText, "residual_lstm", of_texts<ResidualLstmNet, ResidualLstmNetOptions>},
    Purpose{"clicks", "dlrm", [](std::int64_t n, const Config&) { return dlrm_network(DlrmOptions{}, n); }},
};

bool is_of_words(const TensorType& type) { return type.shape.size() == 2 && type.dtype != DType::f32; }

}  // namespace

WholeNetwork with_text_length(WholeNetwork network, std::int64_t length) {
  for (std::vector<NetworkInput>* all : {&network.inputs, &network.labels})
    for (NetworkInput& input : *all)
      if (is_of_words(input.type)) input.type.shape[1] = length;  // (N,T)
  return network;
}

WholeNetwork dlrm_network(const DlrmOptions& o, std::int64_t samples) {
  auto net = std::make_unique<Dlrm>(o);
  Dlrm& module = *net;
  return {
      .module = std::move(net),
      .inputs = {input("dense", DType::f32, {samples, o.numbers}),
                 input("categories", DType::i32, {samples, std::ssize(o.rows), 1}, o.rows)},
      .forward =
          [&module](const Tensors& in) {
            return Tensors{module(Clicks{in[0], in[1]})};
          },
      .outputs = {"logits"},
      .labels = {input("labels", DType::f32, {samples, 1})},
      .loss = [](const Tensors& out, const Tensors& labels) { return bce_with_logits(out[0], labels[0]); }};
}

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

void fill_with_zeros(ModuleBase& module) {
  StateDict zeros;
  for (const auto& [path, p] : module.named_parameters()) zeros[path] = Tensor::zeros(p->tensor.type());
  module.load(zeros);
}

engine::Graph traced_loss(const WholeNetwork& network) {
  engine::Graph graph;
  engine::Trace trace(graph);
  const auto taken = [&](const std::vector<NetworkInput>& wanted) {
    Tensors tensors;
    for (const NetworkInput& input : wanted) tensors.push_back(trace.input(input.name, input.type));
    return tensors;
  };
  const Tensors inputs = taken(network.inputs);
  trace.result(kLossResult, network.loss(network.forward(inputs), taken(network.labels)));
  return graph;
}

std::string purpose_of(const std::string& name) {
  std::vector<std::string> purposes, all;
  for (const std::string& purpose : network_purposes())
    for (const std::string& network : network_names(purpose)) {
      if (network == name) purposes.push_back(purpose);
      if (!engine::contains(all, network)) all.push_back(network);
    }
  if (purposes.empty()) engine::refuse_name(name, all, "network");
  if (purposes.size() > 1)
    throw Error(fmt::format("{} is there for each of {}: say --for", name, fmt::join(purposes, ", ")));
  return purposes[0];
}

WholeNetwork make_network(const std::string& name, const std::string& purpose, std::int64_t samples,
                          const Config& config) {
  const std::vector<std::string> names = network_names(purpose);
  for (const Purpose& p : kPurposes) {
    if (p.name != purpose || p.network != name) continue;
    if (config && !p.takes_config) break;
    return p.make(samples, config);
  }
  if (!engine::contains(names, name)) engine::refuse_name(name, names, "network for " + purpose);
  if (config) throw Error(fmt::format("no sizes of {} can be read from a config.json", name));
  return of_images(make_network(name, kCifarClasses), kCifarSide, samples, kCifarClasses);
}

}  // namespace tandem::nn
