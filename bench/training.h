#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
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

/// Gives a network the same drawn inputs and labels again and again: numbers uniform in −1 … 1, ids uniform
/// over what they name, masks that are true.
class DrawnInputs final : public engine::Host {
 public:
  explicit DrawnInputs(const nn::WholeNetwork& net);
  void fill(const engine::HostInput& in) override;
  void deliver(const engine::HostResult&) override {}

 private:
  std::map<std::string, std::vector<std::byte>> drawn_;
};

/// Returns the seconds of `steps` training steps, sorted, after two that do not count.
std::vector<double> step_seconds(engine::Session& session, int steps);

}  // namespace tandem::bench
