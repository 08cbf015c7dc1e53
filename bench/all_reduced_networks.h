#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <tandem/nn/module.h>

namespace tandem::bench {

/// The networks whose all-reduces are measured: ResNet-56, VGG-16 on 32×32 images, and "bert-mlp": the
/// matrices of BERT-Base's twelve blocks, one after another, on flat images.
inline const std::vector<std::string> kAllReducedNetworks{"resnet56", "vgg16", "bert-mlp"};

/// Returns an initialized network of this name.
std::unique_ptr<nn::Module> all_reduced_network(const std::string& name);
/// Returns how many samples a rank takes of it, so that backward takes some tenths of a second.
std::int64_t samples_per_rank(const std::string& name);

}  // namespace tandem::bench
