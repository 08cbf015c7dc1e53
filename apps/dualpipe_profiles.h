#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <tandem/core/graph/graph.h>
#include <tandem/plan/strategy.h>

#include "dualpipe_families.h"
#include "dualpipe_run.h"
#include "dualpipe_schemes.h"

namespace tandem::apps {

/// A network with its weights, traced for a batch.
struct TracedNetwork {
  std::unique_ptr<nn::Module> module;
  const Dataset& data;
  engine::Graph forward(std::int64_t samples) const;
};
/// Returns the network in the paper's size, for the training samples, which it refers to.
TracedNetwork traced(const DualPipeNetwork& network, const DualPipeSamples& samples);

/// Returns how a scheme trains in lockstep on so many stages, which are not cut yet.
Strategy lockstep_strategy(const DualPipeScheme& scheme, int stages);

/// A lockstep run on stages of this machine.
struct RealRun {
  double batch_ms = 0;
  double busy = 0;  ///< the share of the stages' time in which they compute
};

/// What is measured of a network on this machine. Schemes have their names of figures of throughput.
struct MeasuredNetwork {
  std::string title;
  std::map<int, SchemeProfiles> profiles;                               ///< by GPUs
  std::map<int, std::map<std::string, std::vector<std::string>>> cuts;  ///< by GPUs and scheme
  std::map<std::string, RealRun> runs;  ///< by scheme, on as many stages as the fewest GPUs

  /// Returns B over F of the whole network, without predictions.
  double backward_ratio() const;
  /// Returns the part of it that the updates are.
  double update_ratio() const;
  double corun() const;
  double single_ms() const;
};

/// Measures profiles for these numbers of GPUs, and runs pipelines on the first of them. The cuts are those
/// that are best for each scheme by the measured kernels of the network's layers. A device is one core; its
/// link is as much slower than PCIe 3.0 x16 as it is slower than the paper's GPU, by operations per
/// second.
MeasuredNetwork measure(const DualPipeNetwork& network, const DualPipeSamples& samples, std::int64_t batch,
                        const std::vector<int>& gpus);

}  // namespace tandem::apps
