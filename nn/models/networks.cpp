#include <tandem/nn/models/networks.h>

#include <array>

#include <tandem/core/base/named.h>
#include <tandem/nn/models/convnet.h>
#include <tandem/nn/models/mlp.h>
#include <tandem/nn/models/resnet.h>
#include <tandem/nn/models/snn.h>
#include <tandem/nn/models/vgg.h>

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

}  // namespace

std::vector<std::string> network_names() { return engine::names_of(kNetworks); }

std::unique_ptr<Module> make_network(const std::string& name, int classes) {
  return engine::row_named(name, kNetworks, "network").make(classes);
}

}  // namespace tandem::nn
