#pragma once
#include <ostream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <tandem/plan/optimizer.h>

#include "training_run.h"

namespace tandem::testing {

/// A training whose losses PyTorch computed: tests/golden/networks.json. The test repeats it. The program
/// golden_export writes initial weights and batches for tests/golden/make_networks.py, so that no file needs
/// to hold them.
struct GoldenNetwork {
  std::string name;     ///< "resnet20 f32 SGD": unique
  std::string network;  ///< as in nn::network_names()
  nlohmann::json
      arguments;  ///< of the network's class in tests/golden/torch_networks.py; {}: as make_network
  Optimizer optimizer;
  Job job;  ///< one run of kGoldenSteps
};
std::ostream& operator<<(std::ostream& out, const GoldenNetwork& golden);
inline constexpr std::int64_t kGoldenSteps = 20;

/// Every network in f32, the largest with fewer weights, and small in f64. The learning rates keep PyTorch's
/// own f32 close to its f64, which make_networks.py prints: in deep networks a rounding grows a hundredfold
/// in a few steps.
std::vector<GoldenNetwork> golden_networks();

}  // namespace tandem::testing
