#pragma once

namespace tandem::engine {

/// The link between a device and the host, over which values are swapped.
struct CopyLink {
  double bytes_per_ms = 0;  ///< 0: there is no link
  bool duplex = true;       ///< copies to the host and from it do not share it
  bool operator==(const CopyLink&) const = default;
};

}  // namespace tandem::engine
