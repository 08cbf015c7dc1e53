#include "dualpipe_networks.h"

#include <algorithm>

#include <tandem/nn/models/mlp.h>
#include <tandem/nn/models/networks.h>
#include <tandem/nn/models/snn.h>
#include <tandem/nn/models/vgg.h>

namespace tandem::apps {
namespace {

constexpr int kClasses = 10;

// An eighth of the channels, and of the outputs of the layers before the head.
std::unique_ptr<nn::Module> narrow_vgg() {
  return std::make_unique<nn::Vgg16>(nn::Vgg16Options{.classes = kClasses, .width = 8, .hidden = 512});
}
std::unique_ptr<nn::Module> narrow_snn() {
  return std::make_unique<nn::Snn>(nn::SnnOptions{.width = 256, .classes = kClasses, .image = {32, 32, 3}});
}
std::unique_ptr<nn::Module> resnet20() { return nn::make_network("resnet20", kClasses); }
std::unique_ptr<nn::Module> mlp_residual() { return nn::make_network("mlp-residual", kClasses); }

}  // namespace

bool DualPipeNetwork::exists() const {
  const std::vector<std::string> names = nn::network_names();
  return std::ranges::find(names, name) != names.end();
}

std::unique_ptr<nn::Module> DualPipeNetwork::whole() const { return nn::make_network(name, kClasses); }

std::vector<DualPipeNetwork> dualpipe_networks() {
  return {
      {"vgg16", "VGG16", kCnn, 2e-3, true, true, narrow_vgg, 64},
      {"resnet152", "ResNet-152", kCnn, 2e-2},
      {"inception_v4", "Inception v4", kCnn, 1e-3},
      {"snn", "SNN", kOther, 1e-3, true, true, narrow_snn, 64},
      {"transformer", "Transformer", kOther, 5e-5},
      {"residual_lstm", "Residual LSTM", kOther, 5e-3},
      {"resnet56", "ResNet-56", kCnn, 2e-2, false, true},
      {"resnet20", "ResNet-20", kCnn, 2e-2, false, false, resnet20, 16},
      {"mlp-residual", "residual MLP", kOther, 5e-3, false, false, mlp_residual, 64},
  };
}

}  // namespace tandem::apps
