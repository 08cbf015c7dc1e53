#pragma once
#include <string>

#include "report.h"

namespace tandem::apps {

/// Returns the page about LIBRA. Figs. 1, 6, 7, 8 and 9 are simulated from the shipped profiles, for the
/// paper's cluster: a ring of 8 nodes. `measured` is empty, or a file with measured times of policies (docs/
/// data-parallel.md), which adds Fig. 5 and the measured part of Fig. 8. Throws Error naming it if it is
/// malformed.
Report libra_report(const std::string& measured);

}  // namespace tandem::apps
