#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace tandem::apps {

/// The numbers of threads of LIBRA's evaluation, R: what planners can choose from if a profile knows any
/// number.
inline const std::vector<int> kLibraAllocations{128, 256, 512, 1024, 2048, 4096};

/// The options of `tandem plan all-reduce` and `tandem sim all-reduce`, which plan and predict all-reduces
/// from a profile, without a cluster.
struct AllReduceRequest {
  std::string profile, policies, allocations, groups = "10", trace;
  std::string nodes;  ///< empty: those of the run that measured the profile, or else 8
  int chunks = 150;
  bool json = false;
};

void add_plan_options(CLI::App& command, AllReduceRequest& o);
void add_simulation_options(CLI::App& command, AllReduceRequest& o);

/// Print the plan of one policy, and the times of several on several numbers of nodes. Throw Error if an
/// option or the profile is not sound.
void plan_all_reduces(const AllReduceRequest& o);
void simulate_all_reduces(const AllReduceRequest& o);

}  // namespace tandem::apps
