#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include <tandem/engine.h>

namespace tandem::bench {

/// The networks that are measured unless others are named.
inline const std::vector<std::string> kNetworks{"mlp", "convnet", "resnet20", "vgg16", "snn"};

/// Returns the forward graph of a network, with its loss, on a batch of 32×32 images.
engine::Graph traced(nn::Module& net, std::int64_t batch);

/// Returns a host that gives the same batch of drawn images again and again.
engine::FunctionHost drawn_host(std::int64_t batch);

/// Returns the seconds of `steps` training steps, sorted, after two that do not count.
std::vector<double> step_seconds(engine::Session& session, int steps);

}  // namespace tandem::bench
