#pragma once
#include <string>
#include <string_view>

namespace tandem {

/// A link between two ranks, the same in each direction. The throttle imposes it; the simulator assumes it.
struct LinkModel {
  double latency = 0;    ///< seconds from one end to the other, α in LIBRA Eq. (4)
  double bandwidth = 0;  ///< bytes per second, x in LIBRA Eq. (3); 0: no limit
  bool operator==(const LinkModel&) const = default;
};

/// Returns the seconds of a point-to-point transfer of `bytes`: latency + bytes / bandwidth.
double transfer_seconds(const LinkModel& link, double bytes);

/// Returns the startup seconds of a ring all-reduce, a = 2(n−1)·α of LIBRA Eq. (4); 0 for one rank.
double all_reduce_startup_seconds(const LinkModel& link, int ranks);

/// Returns the seconds of a ring all-reduce of `bytes` over `ranks`: a + ĉ/x with ĉ = 2(n−1)/n · bytes,
/// LIBRA Eqs. (3) and (4); 0 for one rank.
double all_reduce_seconds(const LinkModel& link, double bytes, int ranks);

/// Returns the seconds of a barrier over `ranks`: those of an all-reduce of 0 bytes.
double barrier_seconds(const LinkModel& link, int ranks);

/// Reads "1GB/s,50us": a bandwidth (Gb/s, Mb/s in bits; GB/s, MB/s, kB/s in bytes; powers of ten), a latency
/// (us, ms, s), or both in either order. A missing part sets no limit. Bandwidths are 1 kB/s to 1e6 GB/s,
/// latencies up to 100 s. Throws Error listing the forms and, if a number is out of range, the range.
LinkModel parse_link(std::string_view text);

/// Returns the form that `parse_link` reads: "1GB/s,50us".
std::string to_string(const LinkModel& link);

}  // namespace tandem
