#include <tandem/nn/models/networks.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tandem/nn/models/convnet.h>
#include <tandem/nn/models/mlp.h>
#include <tandem/nn/models/resnet.h>
#include <tandem/nn/models/snn.h>
#include <tandem/nn/models/vgg.h>

namespace tandem::nn {
namespace {

struct Network {
  std::string name;
  std::unique_ptr<Module> (*make)(int classes);
};

template <int depth> std::unique_ptr<Module> resnet(int classes) {
  return std::make_unique<ResNet>(ResNetOptions{.depth = depth, .classes = classes});
}

const std::vector<Network>& networks() {
  static const std::vector<Network> table = {
      {"mlp",
       [](int c) -> std::unique_ptr<Module> {
         return std::make_unique<Mlp>(
             MlpOptions{.hidden = 256, .classes = c, .blocks = 2, .image = {32, 32, 3}});
       }},
      {"mlp-residual",
       [](int c) -> std::unique_ptr<Module> {
         return std::make_unique<MlpResidual>(
             MlpOptions{.hidden = 256, .classes = c, .blocks = 4, .image = {32, 32, 3}});
       }},
      {"convnet",
       [](int c) -> std::unique_ptr<Module> {
         return std::make_unique<ConvNet>(ConvNetOptions{.classes = c});
       }},
      {"resnet20", resnet<20>},
      {"resnet32", resnet<32>},
      {"resnet56", resnet<56>},
      {"vgg16",
       [](int c) -> std::unique_ptr<Module> { return std::make_unique<Vgg16>(Vgg16Options{.classes = c}); }},
      {"snn",
       [](int c) -> std::unique_ptr<Module> {
         return std::make_unique<Snn>(SnnOptions{.classes = c, .image = {32, 32, 3}});
       }},
  };
  return table;
}

}  // namespace

std::vector<std::string> network_names() {
  std::vector<std::string> names;
  for (const Network& n : networks()) names.push_back(n.name);
  return names;
}

std::unique_ptr<Module> make_network(const std::string& name, int classes) {
  for (const Network& n : networks())
    if (n.name == name) return n.make(classes);
  throw Error(fmt::format("no network '{}'; there are: {}", name, fmt::join(network_names(), ", ")));
}

}  // namespace tandem::nn
