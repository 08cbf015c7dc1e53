#pragma once
#include <string>

#include <CLI/CLI.hpp>

#include "dualpipe_report.h"
#include "mu_two_report.h"

namespace tandem::apps {

/// The options of `tandem reproduce PAPER`.
struct ReproduceOptions {
  std::string output;
  bool force = false;
  std::string measured;      ///< of libra
  DualPipeOptions dualpipe;  ///< of dualpipe
  MuTwoOptions mu_two;       ///< of mu-two
};

/// Adds a command for each paper.
void add_papers(CLI::App& command, ReproduceOptions& o);

/// Computes the figures of the paper whose command was given, compares them with the paper, and writes the
/// page. Throws Error if an option is not sound or a file cannot be written.
void reproduce(const CLI::App& command, const ReproduceOptions& o);

}  // namespace tandem::apps
