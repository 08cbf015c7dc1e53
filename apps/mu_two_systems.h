#pragma once
#include <vector>

#include "mu_two_simulation.h"
#include "report.h"

namespace tandem::apps {

/// What each system takes for some numbers of models of one network on one device.
struct SystemOutcomes {
  MuTwoNetwork network;
  MuTwoDevice device;
  std::vector<int> models;
  std::vector<MuTwoOutcome> hfta, capuchin, mu_two, greedy;  ///< by number of models

  std::string title() const { return network.title + ", " + device.name; }
  bool is_on_a100() const { return device.name == mu_two_a100().name; }
};

/// Fig. 8: how much faster than HFTA each system is. Adds what it shows to the claims.
Figure speedup_figure(const std::vector<SystemOutcomes>& all, std::vector<Claim>& claims);
/// Fig. 7: how many hours of training μ-TWO saves. Adds what it shows to the claims.
Figure hours_figure(const std::vector<SystemOutcomes>& all, std::vector<Claim>& claims);
/// Figs. 9a to 9d: what the time and the memory are for. Adds what they show to the claims.
std::vector<Figure> breakdown_figures(const std::vector<SystemOutcomes>& all, std::vector<Claim>& claims);

}  // namespace tandem::apps
