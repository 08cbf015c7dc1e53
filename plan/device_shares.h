#pragma once
#include <vector>

#include <tandem/core/runtime/timeline.h>
#include <tandem/core/schedule/program.h>

namespace tandem::engine {

/// What the time of all devices goes to, in shares that add up to 1. Each moment of a device counts for the
/// first of these that holds.
struct DeviceShares {
  double busy = 0;      ///< it computes
  double transfer = 0;  ///< bytes that it sends, receives, or reduces move
  /// It waits for another device, and that one, perhaps through more devices, for a transfer that waits for
  /// its link: the bytes are made, and the link still moves others.
  double transfer_idle = 0;
  double imbalance_idle = 0;  ///< it waits for another device, or has nothing more to do
};

/// Returns the shares of all devices of a simulated Program between two times, in seconds. `timeline` has
/// every batch from 0 on. A device d of the Program counts as `replicas[d]` that do the same.
DeviceShares device_shares(const Program& program, const Timeline& timeline, double begin, double end,
                           const std::vector<int>& replicas);

}  // namespace tandem::engine
