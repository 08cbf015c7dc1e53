#pragma once
#include <string>
#include <vector>

#include "report.h"

namespace tandem::apps {

struct MuTwoOptions {
  std::vector<std::string> only{};      ///< figures; empty: all
  std::vector<std::string> networks{};  ///< by name; empty: all
  int most_models = 0;                  ///< 0: 12
  double kernel_us = 0;                 ///< what a kernel takes beside its operations and bytes; 0: 10
  int rounds = 10;                      ///< of a few measured steps; the median counts
};
std::string mu_two_figure_help();
/// Returns the names of the figures that the options ask for.
std::vector<std::string> mu_two_figures(const MuTwoOptions& options);

/// Returns the page about μ-TWO: Figs. 1, 3, 7, 8, 9 and Tables D and E, simulated on the paper's devices
/// from the graphs of its six networks with the batches of its Table 1; and Figs. 1 and 8, measured on this
/// machine with smaller ones. Throws Error if an option names what is not there.
Report mu_two_report(const MuTwoOptions& options, const SaveReport& save);

}  // namespace tandem::apps
