#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace tandem {

/// A link between two ranks, the same in each direction. CommOptions::link imposes it; the simulator assumes
/// it.
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

/// Returns the seconds in which each of `ranks` gets `bytes` from every other: latency + (n−1)·bytes/x; 0 for
/// one rank.
double all_gather_seconds(const LinkModel& link, double bytes, int ranks);

/// How ranks make a collective of messages. It changes no bit of a sum.
enum class CollectiveAlgorithm : std::uint8_t {
  automatic,  ///< direct for up to kMostDirectRanks ranks, otherwise ring
  direct,     ///< every rank sums one slice, and exchanges slices with every other rank
  ring,       ///< chunks travel from the first rank to the last, which adds last; then the sums travel on
};
inline constexpr int kMostDirectRanks = 8;
/// Whether these ranks use the direct algorithm.
bool is_direct(CollectiveAlgorithm algorithm, int ranks);

/// Reads "auto", "direct", or "ring". Throws Error listing them.
CollectiveAlgorithm parse_collective(std::string_view text);
std::string to_string(CollectiveAlgorithm algorithm);

/// Returns the seconds of an all-reduce by the hops that `algorithm` makes, not those of Eq. (4). Direct: ĉ
/// through each link, and two latencies, of which long data hides a part. Ring: every chunk passes the first
/// links twice if there are more than two ranks, since sums add up in the order of the ranks; `chunk` is in
/// bytes.
double all_reduce_seconds(const LinkModel& link, double bytes, int ranks, CollectiveAlgorithm algorithm,
                          double chunk);
double all_reduce_seconds(const LinkModel& link, double bytes, int ranks, CollectiveAlgorithm algorithm);

/// All that Eq. 3 takes from the number of ranks, by the messages that `algorithm` makes.
struct CollectiveHops {
  double startup = 0;        ///< latencies that an all-reduce waits for: a = startup · latency
  double sent_per_byte = 0;  ///< ĉ / c, over the busiest link
};
/// Returns the hops of long all-reduces: those that `all_reduce_seconds` has, without a ring's chunks.
CollectiveHops hops_of(CollectiveAlgorithm algorithm, int ranks);

/// Returns the bytes of a ring's chunks, unless the Comm's segments are shorter.
std::int64_t ring_chunk_bytes(std::int64_t bytes, int ranks);

/// Returns the seconds of a barrier over `ranks`: those of an all-reduce of 0 bytes.
double barrier_seconds(const LinkModel& link, int ranks);

/// Reads "1GB/s,50us": a bandwidth (Gb/s, Mb/s in bits; GB/s, MB/s, kB/s in bytes; powers of ten), a latency
/// (us, ms, s), or both in either order. A missing part sets no limit. Bandwidths are 1 kB/s to 1e6 GB/s,
/// latencies up to 100 s. Throws Error listing the forms and, if a number is out of range, the range.
LinkModel parse_link(std::string_view text);

/// Throws Error unless latency and bandwidth are finite and not negative.
void require_sound(const LinkModel& link);

/// Returns the form that `parse_link` reads: "1GB/s,50us".
std::string to_string(const LinkModel& link);

}  // namespace tandem
