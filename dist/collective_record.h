#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::engine {

enum class CollectiveKind : std::uint8_t {
  all_reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  barrier,
  send,
  receive
};
std::string_view name_of(CollectiveKind kind);

/// A call of a Comm. A plain object: ranks send it to each other.
struct CollectiveCall {
  CollectiveKind kind = CollectiveKind::barrier;
  std::int32_t threads = 1;
  std::int32_t peer = -1;   ///< the other end of a transfer, or the root of a broadcast
  std::int64_t batch = -1;  ///< that it works on; −1: none, between two runs
  std::uint64_t channel = 0;
  std::int64_t bytes = 0;
  double began = 0;   ///< seconds of steady_clock
  double met = 0;     ///< when all ranks had called, if the Comm tells; else 0
  double ended = 0;   ///< 0: not yet
  char name[48] = {}; /**< of the instruction, cut if it is longer; empty between two runs */
};

/// Returns text such as "batch 17, all-reduce of block2 +3 (channel 5, 4096 bytes)".
std::string describe(const CollectiveCall& call);

/// The calls that a rank makes: those that are under way, and the last kKept that have ended. Several lanes
/// can use it at once. A call allocates nothing.
class CollectiveRecord {
 public:
  static constexpr std::size_t kKept = 1000;

  CollectiveRecord();
  /// The next call in `channel` works on this batch, for the instruction of this name.
  void announce(std::uint64_t channel, std::int64_t batch, std::string_view name);
  /// Records the begin of a call, whose `began`, `batch` and `name` it sets. Returns its place for `end`.
  std::size_t begin(CollectiveCall call);
  void end(std::size_t place, double met);
  /// A Program begins or ends to run on this rank.
  void running(bool now);

  /// What the rank is doing now.
  struct CallState {
    bool running = false;   ///< a Program
    std::int32_t open = 0;  ///< calls under way
    CollectiveCall oldest;  ///< of these; if there is none, the last call that has ended
    double since = 0;       ///< seconds of steady_clock: when `oldest` began, or ended
  };
  CallState state() const;
  /// The last `most` calls in the order in which they began, among them all that are under way.
  std::vector<CollectiveCall> last(std::size_t most) const;

 private:
  enum class Use : std::uint8_t { free, announced, open };
  struct Place {
    Use use = Use::free;
    CollectiveCall call;
  };
  Place& place_for(std::uint64_t channel);

  mutable std::mutex mutex_;
  bool running_ = false;
  double idle_since_;
  std::vector<Place> places_;         // of calls under way
  std::vector<CollectiveCall> ring_;  // calls that have ended; number n is at n mod kKept
  std::uint64_t ended_ = 0;
};

/// Writes one JSON object per call and line. `now` is steady_clock's time, which becomes seconds since 1970.
/// Throws Error naming the file if it cannot be written, or if there is one that this did not write.
void write_collectives(const std::string& file, const std::vector<CollectiveCall>& calls);

}  // namespace tandem::engine
