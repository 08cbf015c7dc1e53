#include "dualpipe_networks.h"

#include <tandem/nn/models/deep_resnet.h>
#include <tandem/nn/models/inception_v4.h>
#include <tandem/nn/models/mlp.h>
#include <tandem/nn/models/networks.h>
#include <tandem/nn/models/residual_lstm_net.h>
#include <tandem/nn/models/snn.h>
#include <tandem/nn/models/transformer.h>
#include <tandem/nn/models/vgg.h>
#include <tandem/nn/models/whole_networks.h>

#include "dualpipe_run.h"

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
// An eighth of the channels.
std::unique_ptr<nn::Module> narrow_resnet152() {
  return std::make_unique<nn::DeepResNet>(
      nn::DeepResNetOptions{.depth = 152, .classes = kClasses, .width = 8});
}
std::unique_ptr<nn::Module> narrow_inception_v4() {
  return std::make_unique<nn::InceptionV4>(
      nn::InceptionV4Options{.classes = kClasses, .width = 4, .keeps_size = true});
}
// An eighth of the features, and as many words as drawn texts have.
std::unique_ptr<nn::Module> narrow_transformer() {
  return std::make_unique<nn::Transformer>(
      nn::TransformerOptions{.words = kDrawnWords, .width = 64, .hidden = 64});
}
std::unique_ptr<nn::Module> narrow_residual_lstm() {
  return std::make_unique<nn::ResidualLstmNet>(
      nn::ResidualLstmNetOptions{.words = kDrawnWords, .width = 64, .cells = 128});
}
std::unique_ptr<nn::Module> resnet20() { return nn::make_network("resnet20", kClasses); }
std::unique_ptr<nn::Module> mlp_residual() { return nn::make_network("mlp-residual", kClasses); }

}  // namespace

std::unique_ptr<nn::Module> DualPipeNetwork::whole() const {
  std::unique_ptr<nn::ModuleBase> network =
      nn::make_network(name, reads_texts ? "text" : "cifar", /*samples=*/1).module;
  auto& of_one_input = dynamic_cast<nn::Module&>(*network);
  network.release();
  return std::unique_ptr<nn::Module>(&of_one_input);
}

std::vector<DualPipeNetwork> dualpipe_networks() {
  return {
      {"vgg16", "VGG16", kCnn, 2e-3, true, true, narrow_vgg, 64},
      {"resnet152", "ResNet-152", kCnn, 2e-2, true, true, narrow_resnet152, 64},
      {"inception_v4", "Inception v4", kCnn, 1e-3, true, true, narrow_inception_v4, 64},
      {"snn", "SNN", kOther, 1e-3, true, true, narrow_snn, 64},
      {"transformer", "Transformer", kOther, 5e-5, true, true, narrow_transformer, 64, true},
      {"residual_lstm", "Residual LSTM", kOther, 5e-3, true, true, narrow_residual_lstm, 64, true, 0.2},
      {"resnet56", "ResNet-56", kCnn, 2e-2, false, true},
      {"resnet20", "ResNet-20", kCnn, 2e-2, false, false, resnet20, 16},
      {"mlp-residual", "residual MLP", kOther, 5e-3, false, false, mlp_residual, 64},
  };
}

}  // namespace tandem::apps
