#include "all_reduced_networks.h"

#include <tandem/engine.h>

namespace tandem::bench {
namespace {

struct BertMatrices final : nn::Module {
  nn::Linear stem{*this, "stem", {.in = 3072, .out = 768}};
  nn::ModuleList<nn::Linear> layers{*this, "layers"};
  nn::Linear head{*this, "head", {.in = 768, .out = 10}};
  BertMatrices() {
    for (int block = 0; block < 12; ++block) {
      for (int i = 0; i < 4; ++i) layers.add({.in = 768, .out = 768});
      layers.add({.in = 768, .out = 3072});
      layers.add({.in = 3072, .out = 768});
    }
  }
  Tensor forward(const Tensor& x) override {
    Tensor h = relu(stem(flatten(x)));
    for (nn::Linear& layer : layers) h = relu(layer(h));
    return head(h);
  }
};

}  // namespace

std::unique_ptr<nn::Module> all_reduced_network(const std::string& name) {
  std::unique_ptr<nn::Module> net;
  if (name == "bert-mlp")
    net = std::make_unique<BertMatrices>();
  else
    net = nn::make_network(name, 10);
  net->initialize(1);
  return net;
}

std::int64_t samples_per_rank(const std::string& name) { return name == "vgg16" ? 32 : 64; }

}  // namespace tandem::bench
