#pragma once
#include <map>
#include <string>
#include <vector>

#include <tandem/plan/pipeline_simulation.h>
#include <tandem/plan/stage_profile.h>

#include "dualpipe_networks.h"
#include "figure.h"

namespace tandem::apps {

/// Networks of the paper that are alike, as profiles that its own averages determine.
struct NetworkFamily {
  std::string title;
  double backward_ratio = 1;  ///< r: B over F of a stage
  double sync_share = 0;      ///< of the time with data parallelism on four GPUs
};

/// One fit for each NetworkKind, in its order.
const std::vector<NetworkFamily>& network_families();

/// The profile of a family on N GPUs: one GPU takes 100 ms for a batch. The first N/2 stages have the largest
/// load, so that each lockstep unit of PipeDream has such a stage in B; the others have the same smaller
/// load, with which the mean is β times the largest.
StageProfile family_profile(const NetworkFamily& family, int gpus);

/// Periods and shares of "Single GPU" and of kTimedSchemes, by DualPipeScheme::timed_as. Data P. is a
/// formula, the others are simulated, in lockstep.
using SchemeOutcomes = std::map<std::string, engine::PipelineSimulation>;
SchemeOutcomes scheme_outcomes(const StageProfile& profile);
/// The same, if each pipeline has a profile of its own. They differ in their stages alone.
using SchemeProfiles = std::map<std::string, StageProfile>;
SchemeOutcomes scheme_outcomes(const SchemeProfiles& profiles);

/// A panel of Fig. 11: for each scheme where the time of a batch goes, over that of a batch with Data P.
Panel breakdown_panel(const std::string& name, const SchemeOutcomes& outcomes);

/// The kinds of the figures, without panels.
Figure throughput_figure(const std::string& id, const std::string& title, const std::string& text);
Figure breakdown_figure(const std::string& id, const std::string& title, const std::string& text);

}  // namespace tandem::apps
