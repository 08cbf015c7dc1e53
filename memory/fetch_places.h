#pragma once
#include <cstdint>
#include <vector>

namespace tandem::engine {

/// A value that a memory plan has moved to the host, and that must be back at a place of its list.
struct Fetch {
  int earliest, deadline;  ///< places between which it can begin to move
  std::int64_t bytes;
  double copy_ms;
};

/// Returns the place where each value begins to move: the latest from which it arrives in time, on a channel
/// that moves one after the other; later, where memory is full. `begins_ms` says when places begin, `live`
/// how many bytes they take without these values.
std::vector<int> fetch_places(const std::vector<Fetch>& fetches, const std::vector<double>& begins_ms,
                              std::vector<std::int64_t> live, std::int64_t limit);

}  // namespace tandem::engine
