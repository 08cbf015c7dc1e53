#pragma once
#include <functional>
#include <vector>

#include "mu_two_simulation.h"
#include "report.h"

namespace tandem::apps {

/// Table D: what HFTA and μ-TWO can train on a device, and how much of the device they use. Adds what it
/// shows to the claims.
Figure features_figure(const std::vector<MuTwoNetwork>& networks, std::int64_t device_bytes,
                       const std::function<MuTwoSimulation&(const MuTwoNetwork&)>& simulation,
                       std::vector<Claim>& claims);

/// Table E: what each technique costs that trains beyond the memory of a device. Adds what it shows to the
/// claims.
Figure techniques_figure(const std::vector<MuTwoNetwork>& networks,
                         const std::function<MuTwoSimulation&(const MuTwoNetwork&)>& simulation,
                         std::vector<Claim>& claims);

}  // namespace tandem::apps
