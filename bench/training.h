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

/// Gives the same batch of drawn images again and again, to every replica.
class DrawnHost final : public engine::Host {
 public:
  explicit DrawnHost(std::int64_t batch);
  void fill(const engine::HostInput& in) override;
  void deliver(const engine::HostResult&) override {}

 private:
  std::vector<float> images_;
  std::vector<std::int32_t> labels_;
};

/// Returns the seconds of `steps` training steps, sorted, after two that do not count.
std::vector<double> step_seconds(engine::Session& session, int steps);

}  // namespace tandem::bench
