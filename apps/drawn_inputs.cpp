#include "drawn_inputs.h"

#include <cstdint>
#include <cstring>
#include <random>

#include <tandem/core/base/element.h>
#include <tandem/engine.h>

namespace tandem::apps {
using namespace engine;

DrawnInputs::DrawnInputs(const nn::WholeNetwork& net) {
  std::mt19937_64 rng(1);
  for (const auto* list : {&net.inputs, &net.labels})
    for (const nn::NetworkInput& input : *list) {
      const std::vector<std::int64_t>& counts = input.counts;
      const auto columns = counts.size() > 1 ? static_cast<std::int64_t>(counts.size()) : 1;
      const std::int64_t places = columns > 1 ? input.type.elements() / input.type.shape[0] / columns : 1;
      std::vector<std::byte>& bytes = drawn_[input.name];
      bytes.resize(static_cast<std::size_t>(input.type.bytes()));
      for (std::int64_t i = 0; i < input.type.elements(); ++i) {
        double value = std::uniform_real_distribution<>(-1, 1)(rng);
        if (input.type.dtype == DType::b8) value = 1;
        if (!counts.empty())
          value = static_cast<double>(static_cast<std::int64_t>(rng() >> 1) %
                                      counts[static_cast<std::size_t>(i / places % columns)]);
        store_element(input.type.dtype, bytes.data(), i, value);
      }
    }
}

void DrawnInputs::fill(const HostInput& in) {
  if (const auto drawn = drawn_.find(std::string(in.name)); drawn != drawn_.end())
    std::memcpy(in.bytes.data(), drawn->second.data(), in.bytes.size());
  else
    in.fill(in.name == kSeedInput ? 1 : 1e-3);
}

}  // namespace tandem::apps
