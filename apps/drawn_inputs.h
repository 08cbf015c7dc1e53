#pragma once
#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include <tandem/core/runtime/host.h>
#include <tandem/nn/models/whole_networks.h>

namespace tandem::apps {

/// Gives a network the same drawn inputs and labels again and again: numbers uniform in −1 … 1, ids uniform
/// over what they name, masks that are true. Learning rates are 1e-3, seeds 1.
class DrawnInputs final : public engine::Host {
 public:
  explicit DrawnInputs(const nn::WholeNetwork& net);
  void fill(const engine::HostInput& in) override;
  void deliver(const engine::HostResult&) override {}

 private:
  std::map<std::string, std::vector<std::byte>> drawn_;
};

}  // namespace tandem::apps
