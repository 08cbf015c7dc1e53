#include <tandem/dist/link.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include <tandem/core/base/error.h>

namespace tandem {
namespace {

// Wider than any real link. Larger numbers of seconds would overflow the clock.
constexpr double kLeastBandwidth = 1e3, kMostBandwidth = 1e15, kMostLatency = 100;

constexpr std::int64_t kRingSegment = 512 << 10;  // the default of CommOptions

struct Unit {
  std::string_view name;
  double factor;
  bool is_bandwidth;
};
// Bits and bytes differ by the case of the b only, so units are matched exactly.
constexpr Unit kUnits[] = {{"Gb/s", 1e9 / 8, true}, {"Mb/s", 1e6 / 8, true}, {"GB/s", 1e9, true},
                           {"MB/s", 1e6, true},     {"kB/s", 1e3, true},     {"us", 1e-6, false},
                           {"ms", 1e-3, false},     {"s", 1.0, false}};

[[noreturn]] void refuse(std::string_view text, std::string_view why) {
  throw Error(
      fmt::format("link '{}': {}; write a bandwidth (10Gb/s, 100Mb/s, 1GB/s, 500MB/s, 800kB/s), a latency "
                  "(50us, 1.5ms, 0.1s), or both: '1GB/s,50us'",
                  text, why));
}

std::string_view trim(std::string_view text) {
  const auto begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

}  // namespace

double transfer_seconds(const LinkModel& link, double bytes) {
  return link.latency + (link.bandwidth > 0 ? bytes / link.bandwidth : 0);
}

double all_gather_seconds(const LinkModel& link, double bytes, int ranks) {
  return ranks > 1 ? transfer_seconds(link, (ranks - 1) * bytes) : 0;
}

double all_reduce_startup_seconds(const LinkModel& link, int ranks) {
  return ranks > 1 ? 2.0 * (ranks - 1) * link.latency : 0;
}

double all_reduce_seconds(const LinkModel& link, double bytes, int ranks) {
  if (ranks <= 1) return 0;
  const double sent = 2.0 * (ranks - 1) / ranks * bytes;  // ĉ
  return all_reduce_startup_seconds(link, ranks) + (link.bandwidth > 0 ? sent / link.bandwidth : 0);
}

CollectiveAlgorithm parse_collective(std::string_view text) {
  if (text == "auto") return CollectiveAlgorithm::automatic;
  if (text == "direct") return CollectiveAlgorithm::direct;
  if (text == "ring") return CollectiveAlgorithm::ring;
  throw Error(fmt::format("collective '{}': write auto, direct, or ring", text));
}

std::string to_string(CollectiveAlgorithm algorithm) {
  switch (algorithm) {
    case CollectiveAlgorithm::automatic: return "auto";
    case CollectiveAlgorithm::direct: return "direct";
    case CollectiveAlgorithm::ring: return "ring";
  }
  return "";
}

bool is_direct(CollectiveAlgorithm algorithm, int ranks) {
  return algorithm == CollectiveAlgorithm::direct ||
         (algorithm == CollectiveAlgorithm::automatic && ranks <= kMostDirectRanks);
}

CollectiveHops hops_of(CollectiveAlgorithm algorithm, int ranks) {
  if (ranks <= 1) return {};
  if (is_direct(algorithm, ranks)) return {2, 2.0 * (ranks - 1) / ranks};
  return {2.0 * (ranks - 1), ranks > 2 ? 2.0 : 1.0};
}

double all_reduce_seconds(const LinkModel& link, double bytes, int ranks, CollectiveAlgorithm algorithm,
                          double chunk) {
  if (ranks <= 1) return 0;
  const double seconds_per_byte = link.bandwidth > 0 ? 1 / link.bandwidth : 0;
  if (is_direct(algorithm, ranks)) {
    const CollectiveHops hops = hops_of(algorithm, ranks);
    return hops.startup * link.latency + hops.sent_per_byte * bytes * seconds_per_byte;
  }
  // The last chunk leaves after the others, and has 2(N − 1) hops to go. With more than two ranks, the link
  // from the first to the second is busy until the last sum has passed it, which then has N − 3 hops to go.
  const double chunks = std::max(1.0, std::ceil(bytes / chunk)),
               passes = std::min(bytes, chunk) * seconds_per_byte;
  const double hop = link.latency + passes, last_chunk = (chunks - 1) * passes + 2 * (ranks - 1) * hop;
  if (ranks == 2) return last_chunk;
  return std::max(last_chunk, 2 * bytes * seconds_per_byte + link.latency + (ranks - 3) * hop);
}

double all_reduce_seconds(const LinkModel& link, double bytes, int ranks, CollectiveAlgorithm algorithm) {
  const std::int64_t chunk = ring_chunk_bytes(static_cast<std::int64_t>(bytes), ranks);
  return all_reduce_seconds(link, bytes, ranks, algorithm,
                            static_cast<double>(std::min(chunk, kRingSegment)));
}

std::int64_t ring_chunk_bytes(std::int64_t bytes, int ranks) {
  // A ring is a pipeline: it begins and ends with 2(N − 1) hops of one chunk, in which most links idle. Short
  // chunks cost a message each.
  constexpr std::int64_t kChunksPerHop = 8, kLeast = 32 << 10, kMultiple = 64;
  const std::int64_t chunks = kChunksPerHop * 2 * std::max(1, ranks - 1);
  return std::max((bytes / chunks + kMultiple - 1) / kMultiple * kMultiple, kLeast);
}

double barrier_seconds(const LinkModel& link, int ranks) { return all_reduce_seconds(link, 0, ranks); }

LinkModel parse_link(std::string_view text) {
  LinkModel link;
  bool seen[2] = {false, false};
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view part = trim(text.substr(begin, end - begin));
    begin = end + 1;
    if (part.empty()) refuse(text, "a part is empty");
    double number = 0;
    const auto [rest, code] = std::from_chars(part.data(), part.data() + part.size(), number);
    if (code == std::errc::invalid_argument)
      refuse(text, fmt::format("'{}' does not begin with a number", part));
    const std::string_view name = trim({rest, static_cast<std::size_t>(part.data() + part.size() - rest)});
    const Unit* const unit = std::ranges::find(kUnits, name, &Unit::name);
    if (unit == std::end(kUnits))
      refuse(text,
             name.empty() ? fmt::format("'{}' has no unit", part) : fmt::format("unknown unit '{}'", name));
    const double value = number * unit->factor;
    const auto [least, most] =
        unit->is_bandwidth ? std::pair(kLeastBandwidth, kMostBandwidth) : std::pair(0.0, kMostLatency);
    if (code != std::errc{} || !(value >= least && value <= most))
      refuse(text,
             fmt::format("'{}' is out of range: bandwidths are 1kB/s to 1000000GB/s, latencies 0s to 100s",
                         part));
    if (std::exchange(seen[unit->is_bandwidth], true))
      refuse(text, unit->is_bandwidth ? "two bandwidths" : "two latencies");
    (unit->is_bandwidth ? link.bandwidth : link.latency) = value;
  }
  return link;
}

void require_sound(const LinkModel& link) {
  const auto sound = [](double x) { return std::isfinite(x) && x >= 0; };
  if (!sound(link.latency) || !sound(link.bandwidth))
    throw Error(fmt::format("a link of {} s and {} bytes/s: both must be finite and not negative",
                            link.latency, link.bandwidth));
}

std::string to_string(const LinkModel& link) {
  std::string text;
  if (link.bandwidth >= 1e9)
    text = fmt::format("{:g}GB/s,", link.bandwidth / 1e9);
  else if (link.bandwidth >= 1e6)
    text = fmt::format("{:g}MB/s,", link.bandwidth / 1e6);
  else if (link.bandwidth > 0)
    text = fmt::format("{:g}kB/s,", link.bandwidth / 1e3);
  return text + fmt::format("{:g}us", link.latency * 1e6);
}

}  // namespace tandem
