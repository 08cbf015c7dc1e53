#pragma once
#include <map>
#include <string>
#include <vector>

#include <tandem/dist/all_reduce_profile.h>

#include "report.h"

namespace tandem::apps {

/// One of the paper's networks, as its profile is shipped.
struct LibraNetwork {
  std::string title;  ///< as in the paper: "ResNet152"
  AllReduceProfile profile;
};

/// A policy by its name in dist/all_reduce_policies.h, and the paper's name for it.
struct LibraPolicy {
  const char *name, *title;
};

/// What a simulated iteration takes with one policy.
struct LibraOutcome {
  double backward_ms = 0, compute_ms = 0, residual_ms = 0;  ///< backward is the sum of the others
  double all_reduce_ms = 0;                                 ///< beside computation and after it
  double iteration_ms = 0;                                  ///< with forward
  double samples_per_second = 0;                            ///< of one node
  double normalized = 0;  ///< throughput of a node, over that of one node alone
};

constexpr int kLibraNodes = 8;
/// SE, H-N, MG-N, LIBRA-M, LIBRA, MG-CF: the order of the paper's figures.
const std::vector<LibraPolicy>& libra_policies();
/// The four networks, in the order of the paper's Table I.
std::vector<LibraNetwork> libra_networks();

/// Simulates a policy on a ring of nodes, with K groups at most (LIBRA) and Z = 150.
LibraOutcome libra_outcome(const AllReduceProfile& profile, const std::string& policy, int nodes,
                           int groups = 10);

/// The same profile with all-reduces of this many threads under the policies that choose none.
AllReduceProfile with_baseline_threads(AllReduceProfile profile, int threads);
/// The same profile with another batch: times of computation are in proportion to it.
AllReduceProfile with_batch(AllReduceProfile profile, double batch_size);

/// Outcomes of all networks, by policy, on some number of nodes.
using LibraOutcomes = std::vector<std::map<std::string, LibraOutcome>>;
LibraOutcomes libra_outcomes(const std::vector<LibraNetwork>& networks, int nodes);

/// Everything that the figures and the comparison with the paper are made of.
struct LibraResults {
  std::vector<LibraNetwork> networks;
  LibraOutcomes paper_cluster;           ///< on 8 nodes
  std::map<int, LibraOutcomes> scaling;  ///< by nodes: 16 to 2048
  LibraOutcomes many_threads;            ///< on 8 nodes, 2048 threads for the baselines
  LibraOutcomes many_threads_and_nodes;  ///< on 2048 nodes
};
LibraResults simulate_libra();

/// The figures of the paper that are simulated.
std::vector<Figure> libra_figures(const LibraResults& results);
/// The backward time with 2048 threads over that with 128, less 1: Fig. 1b.
double fig1b_change(const LibraResults& results, double batch_size);
/// The time of a computation beside an all-reduce of r threads, over its time alone, less 1: Fig. 1a.
double fig1a_slowdown(const LibraResults& results, int threads);
/// The table that compares these results with the paper.
std::vector<Claim> libra_claims(const LibraResults& results);

/// Adds what was measured on another cluster, from a file (docs/data-parallel.md): Fig. 5, a measured Fig. 8
/// if the file has its times, and a row of the table. Throws Error naming the file if it is malformed.
void add_measured(const std::string& file, Report& report);

}  // namespace tandem::apps
