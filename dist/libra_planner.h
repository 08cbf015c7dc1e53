#pragma once
#include <vector>

#include <tandem/dist/all_reduce_costs.h>

namespace tandem {

/// How finely the planner searches.
struct LibraLimits {
  int groups = 10;  ///< K: at most; as many as layers, or more, is Eq. 21
  int chunks =
      150;  ///< Z: an all-reduce that has computation beside it begins after a whole number of these parts
};

struct LibraPlan {
  std::vector<AllReduceGroup> groups;
  double grid_ms = 0;  ///< T(K, L, Z): the backward time if all-reduces begin at the edges of chunks
};

/// Returns the plan with the least T(K, L, Z) of LIBRA's Eq. 23, or T(L, Z) of Eq. 21 if the number of groups
/// is no limit: which layers are reduced together, and with how many threads. Takes time O(K·J·L·Z² + J·L²·Z)
/// at worst, for J choices of threads, with a further factor log L of the first term if L > Z, and far less
/// if few layers can be reduced within the computation that is left; and 8·(K + 2)·L·Z bytes. Throws Error
/// unless there is a layer, the computations take time, the limits are 1 or more, and 2 GB are enough.
LibraPlan plan_libra(const std::vector<GradientLayer>& layers, const AllReduceCosts& costs,
                     const LibraLimits& limits = {});

/// The same for given groups: chooses only the threads of each, by Eq. 17.
LibraPlan plan_threads(const std::vector<GradientLayer>& layers, std::vector<AllReduceGroup> groups,
                       const AllReduceCosts& costs, int chunks = 150);

}  // namespace tandem
