#pragma once
#include <cstdint>
#include <optional>

#include <tandem/dist/collective_watch.h>
#include <tandem/dist/link.h>

namespace tandem::engine {

struct CommOptions {
  CollectiveAlgorithm collective = CollectiveAlgorithm::automatic;
  /// Makes every message as slow as over this link. Transfers of two ranks have a link in each direction, as
  /// neighbors in a pipeline do; all collectives of a rank share one link out and one in, as of a network
  /// card. The bytes of messages occupy a link one after another, and the latency delays each message.
  std::optional<LinkModel> link = std::nullopt;
  /// Long collectives move and sum segments of at most this many bytes (rounded up to a multiple of 64), so
  /// that sums and messages overlap. They need scratch memory for two segments: per peer if direct, in all if
  /// a ring. Unset: 512 KiB, but 4 MiB between two ranks of one machine, where nothing overlaps.
  std::optional<std::int64_t> segment_bytes = std::nullopt;
  /// Transfers are cut into messages of at most this many bytes; MPI itself cannot count past 2^31 − 1.
  std::int64_t message_bytes = 1 << 30;
  /// Records the rank's calls, and ends the job if one waits too long. Ranks that are processes have one
  /// watch each, which watches all Comms of the MpiSession that are made after it.
  std::optional<WatchOptions> watch = std::nullopt;
};

}  // namespace tandem::engine
