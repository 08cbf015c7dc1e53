#include "golden_networks.h"

#include <tandem/nn/models/convnet.h>
#include <tandem/nn/models/mlp.h>
#include <tandem/nn/models/networks.h>
#include <tandem/nn/models/resnet.h>
#include <tandem/nn/models/snn.h>
#include <tandem/nn/models/vgg.h>

namespace tandem::testing {
using namespace engine;
namespace {

constexpr int kClasses = 10;

using Model = std::function<std::unique_ptr<nn::Module>()>;
template <class Network, class Options> Model model_of(Options options) {
  return [options] { return std::make_unique<Network>(options); };
}

struct Sizes {
  std::string network;
  nlohmann::json arguments;
  Model model;
  std::int64_t images, side;  // per batch; in pixels
};

const SgdOptions kSgd{.momentum = 0.9, .weight_decay = 5e-4};
const SgdOptions kNesterov{.momentum = 0.9, .weight_decay = 5e-4, .nesterov = true};
const AdamOptions kAdam{.weight_decay = 1e-2};
const AdamOptions kAdamW{.weight_decay = 1e-2, .decoupled = true};

GoldenNetwork golden(const Sizes& s, DType dtype, const Optimizer& optimizer, double rate) {
  const auto* adam = std::get_if<AdamOptions>(&optimizer);
  const std::string kind = !adam ? "SGD" : adam->decoupled ? "AdamW" : "Adam";
  Job job;
  job.model = s.model;
  job.sample = {s.side, s.side, 3};
  job.classes = kClasses;
  job.dtype = dtype;
  job.batch_size = s.images;
  job.drains = {kGoldenSteps};
  job.rates = {rate};
  job.poison = false;
  job.period = 4;  // few enough batches to be learned
  return {s.network + " " + std::string(name_of(dtype)) + " " + kind, s.network, s.arguments, optimizer, job};
}

// The networks of make_network.
Sizes full(const std::string& network, std::int64_t images) {
  return {network, nlohmann::json::object(), [=] { return nn::make_network(network, kClasses); }, images, 32};
}

Sizes small_resnet(int depth) {
  return {"resnet" + std::to_string(depth),
          {{"width", 8}},
          model_of<nn::ResNet>(nn::ResNetOptions{.depth = depth, .width = 8}),
          4,
          8};
}

// Each framework draws its own masks, so these have no dropout.
Sizes vgg16(std::int64_t width, std::int64_t hidden, std::int64_t images) {
  return {"vgg16",
          {{"width", width}, {"hidden", hidden}, {"dropout", 0.0}},
          model_of<nn::Vgg16>(nn::Vgg16Options{.width = width, .hidden = hidden, .dropout = 0}),
          images,
          32};
}

Sizes snn(std::int64_t width, int layers, std::int64_t images) {
  return {"snn",
          {{"width", width}, {"layers", layers}},
          model_of<nn::Snn>(nn::SnnOptions{.width = width, .layers = layers, .image = {32, 32, 3}}),
          images,
          32};
}

}  // namespace

std::vector<GoldenNetwork> golden_networks() {
  constexpr DType f32 = DType::f32, f64 = DType::f64;
  return {
      golden(full("mlp", 16), f32, kSgd, 0.02),           golden(full("mlp", 16), f32, kAdam, 1e-3),
      golden(full("mlp-residual", 16), f32, kSgd, 0.01),  golden(full("convnet", 16), f32, kNesterov, 5e-3),
      golden(full("convnet", 16), f32, kAdamW, 1e-3),     golden(full("resnet20", 16), f32, kSgd, 1e-3),
      golden(full("resnet32", 8), f32, kSgd, 2e-4),       golden(full("resnet56", 4), f32, kSgd, 2e-5),
      golden(vgg16(64, 1024, 2), f32, kSgd, 2e-4),        golden(snn(512, 8, 16), f32, kSgd, 5e-4),
      golden(full("mlp", 16), f64, kSgd, 0.02),           golden(full("mlp", 16), f64, kAdam, 1e-3),
      golden(full("mlp-residual", 4), f64, kAdamW, 2e-4), golden(full("convnet", 2), f64, kNesterov, 0.05),
      golden(small_resnet(20), f64, kSgd, 0.02),          golden(small_resnet(20), f64, kAdam, 1e-3),
      golden(small_resnet(32), f64, kSgd, 0.02),          golden(small_resnet(56), f64, kSgd, 0.005),
      golden(vgg16(8, 64, 2), f64, kSgd, 0.005),          golden(snn(64, 32, 16), f64, kSgd, 0.005),
  };
}

std::ostream& operator<<(std::ostream& out, const GoldenNetwork& golden) { return out << golden.name; }

}  // namespace tandem::testing
