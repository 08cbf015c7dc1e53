#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <tandem/core/graph/graph.h>
#include <tandem/memory/memory_policies.h>
#include <tandem/plan/strategy.h>

namespace tandem::apps {
using namespace engine;

/// A device of the paper: its memory, and how fast it is by a roofline.
struct MuTwoDevice {
  std::string name;
  std::int64_t bytes, host_bytes;  ///< of its memory, and of its host's
  DeviceSpeed speed;
};
const MuTwoDevice& mu_two_a100();
const MuTwoDevice& mu_two_v100();

/// A network of the paper, and the samples of a model's batch.
struct MuTwoNetwork {
  std::string title, network, purpose;
  std::int64_t samples;
  std::int64_t smaller;     ///< Table 1 has two batches: `samples`, and this
  std::int64_t words = 0;   ///< of each text, the most that the network takes; 0: it takes no texts
  std::int64_t larger = 0;  ///< a batch of ours, where twelve models with Table 1's fit the A100; 0: none
  bool is_ours = false;     ///< `samples` is a batch of ours
};
/// The paper's Table 1, with the larger batch of each network.
const std::vector<MuTwoNetwork>& mu_two_networks();
MuTwoNetwork with_samples(MuTwoNetwork network, std::int64_t samples);
/// Returns a network with its batch of ours, and a title that says so.
MuTwoNetwork with_larger_batch(MuTwoNetwork network);

/// What a batch of all models takes.
struct MuTwoOutcome {
  bool possible = false;
  double ms = 0, recompute_ms = 0, stall_ms = 0;
  double swap_ms = 0;             ///< of all copies
  double compute_ms = 0;          ///< without what is computed again
  double roofline_ms = 0;         ///< of that, without what each kernel takes beside its operations and bytes
  std::int64_t peak_bytes = 0;    ///< of the plan
  std::int64_t wanted_bytes = 0;  ///< of the largest array or pair, without a plan
  std::int64_t state_bytes = 0;   ///< of weights and the optimizer, of all turns
  std::int64_t host_bytes = 0;    ///< of swapped values, and of the states of models that wait for their turn
  std::string arrays;             ///< "(4, 4)"

  /// The share of the time that the rooflines of its kernels take.
  double utilization() const { return roofline_ms / ms; }
};

/// Trains several models of one network on a simulated device: each array of models is the Program that
/// Tandem would run, its times are those of the roofline, and its memory plan is replayed.
class MuTwoSimulation {
 public:
  MuTwoSimulation(const MuTwoNetwork& network, MuTwoDevice device);

  /// HFTA: the largest arrays that fit, one after the other.
  MuTwoOutcome hfta(int models);
  /// HFTA with Capuchin: one array of all models.
  MuTwoOutcome hfta_capuchin(int models);
  /// The fastest of μ-TWO's partitions, by a policy (mu-two, mu-two+).
  MuTwoOutcome mu_two(int models, const std::string& policy = "mu-two+");
  /// An array of all models on a device that is large enough.
  MuTwoOutcome unlimited(int models);
  /// An array, or a pair of arrays, with the plan of a policy for the device's memory.
  MuTwoOutcome planned(const std::vector<int>& arrays, const std::string& policy) {
    return planned(arrays, policy, device_.bytes);
  }
  /// The step of arrays as a memory problem: of one array, or of a pair.
  const MemoryProblem& problem_of(const std::vector<int>& arrays);

 private:
  MuTwoOutcome planned(const std::vector<int>& arrays, const std::string& policy, std::int64_t limit);

  MuTwoDevice device_;
  Graph forward_;
  std::map<std::vector<int>, MemoryProblem> problems_;
  std::map<std::pair<std::vector<int>, std::string>, MuTwoOutcome> outcomes_;
};

}  // namespace tandem::apps
