#pragma once
#include <string>
#include <string_view>

namespace tandem {

/// A link between two ranks, each direction on its own: what the throttle imposes and the simulator assumes.
struct LinkModel {
  double latency = 0;    ///< seconds from one end to the other, α in LIBRA Eq. (4)
  double bandwidth = 0;  ///< bytes per second, x in LIBRA Eq. (3); 0: no limit
  bool operator==(const LinkModel&) const = default;
};

/// Seconds a point-to-point transfer of `bytes` takes: latency + bytes / bandwidth.
double transfer_seconds(const LinkModel& link, double bytes);

/// Startup seconds of a ring all-reduce, a = 2(n−1)·α of LIBRA Eq. (4); 0 for one rank.
double all_reduce_startup_seconds(const LinkModel& link, int ranks);

/// Seconds a ring all-reduce of `bytes` over `ranks` takes: a + ĉ/x with ĉ = 2(n−1)/n · bytes,
/// LIBRA Eqs. (3) and (4); 0 for one rank.
double all_reduce_seconds(const LinkModel& link, double bytes, int ranks);

/// Seconds a barrier over `ranks` takes: an all-reduce of nothing.
double barrier_seconds(const LinkModel& link, int ranks);

/// Reads "1GB/s,50us": a bandwidth (Gb/s, Mb/s in bits; GB/s, MB/s, kB/s in bytes; powers of ten), a latency
/// (us, ms, s), or both in either order. What is left out does not limit. Bandwidths are 1 kB/s to 1e6 GB/s,
/// latencies up to 100 s. Throws Error listing these forms, or this range.
LinkModel parse_link(std::string_view text);

/// The form `parse_link` reads: "1GB/s,50us".
std::string to_string(const LinkModel& link);

}  // namespace tandem
