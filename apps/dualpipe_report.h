#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "report.h"

namespace tandem::apps {

/// The options of `tandem reproduce dualpipe`.
struct DualPipeOptions {
  std::string scale = "small";
  std::string only, networks, sgd_rules;        ///< lists of names; empty: all
  std::string rates;                            ///< of the figure of rates: a list of factors; empty: all
  std::string data;                             ///< directory with CIFAR-10; empty: drawn images
  std::int64_t iterations = 0, batch_size = 0;  ///< 0: as the scale says
  int seeds = 0;                                ///< 0: as the scale says
};

/// What help says about --scale and --only.
std::string dualpipe_scale_help();
std::string dualpipe_figure_help();
/// Returns the names of the figures that the options ask for. Throws Error if there is no such figure.
std::vector<std::string> dualpipe_figures(const DualPipeOptions& options);

/// Returns the page about DualPipe and SpecTrain (Chen, Yang, Cheng 2018), part by part: schedules drawn by
/// the simulator, throughput simulated from profiles that are fitted to the paper and from profiles that are
/// measured on this machine, and networks trained on pipelines of threads. Calls `save` after each part.
/// Throws Error if an option is not sound, or what training throws.
Report dualpipe_report(const DualPipeOptions& options, const SaveReport& save);

}  // namespace tandem::apps
