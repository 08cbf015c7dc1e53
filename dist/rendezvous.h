#pragma once
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include <tandem/core/base/types.h>
#include <tandem/dist/abort.h>
#include <tandem/dist/workers.h>

namespace tandem::engine {

/// One direction of one channel between two threads. The first end to arrive sleeps. The second copies from
/// the sender's buffer into the receiver's, then wakes the first.
///
/// An abort ends the wait for the other end, never a copy that has begun: no other thread touches a caller's
/// buffer after its call returned or threw.
class Mailbox {
 public:
  Mailbox(int from, int to, std::uint64_t channel) : from_(from), to_(to), channel_(channel) {}
  void send(const void* data, std::int64_t bytes, const AbortFlag& abort);
  void receive(void* data, std::int64_t bytes, const AbortFlag& abort);
  /// Makes waiting calls look at the abort flag.
  void wake();

 private:
  struct End {
    std::byte* data;
    std::int64_t bytes;
    std::atomic<bool> done = false;  // written under the mutex
    std::string error;
  };
  void meet(End& mine, End*& my_place, End*& their_place, const AbortFlag& abort);

  const int from_, to_;
  const std::uint64_t channel_;
  std::mutex mutex_;
  std::condition_variable changed_;
  End* sender_ = nullptr;  // waiting, not yet matched
  End* receiver_ = nullptr;
};

/// The collectives of one channel, for one or more groups of threads. When the last member has arrived, the
/// members share the work chunk by chunk: an awake member folds the next chunk over all ranks in rank order,
/// so the bits do not depend on the member. As with Mailbox, an abort ends only the wait for members.
class Meeting {
 public:
  explicit Meeting(std::uint64_t channel) : channel_(channel) {}
  /// Threads that a member brings: up to `threads` with its own.
  struct Help {
    Workers& workers;
    int threads = 1;
  };
  /// Member `index` of `group` brings `count` elements at `data`; on return they hold the sums.
  /// Returns the time (steady_seconds) when the last member had arrived.
  double all_reduce(std::span<const int> group, std::size_t index, void* data, std::int64_t count,
                    DType dtype, const AbortFlag& abort, const Help& help);
  void barrier(std::span<const int> group, std::size_t index, const AbortFlag& abort);
  void wake();

 private:
  enum class Kind : std::uint8_t { all_reduce, barrier };
  enum class Progress : std::uint8_t { gathering, working, done };
  struct Member {
    Kind kind;
    std::byte* data;
    std::int64_t count;
    DType dtype;
    std::atomic<Progress> progress = Progress::gathering;  // written under the mutex
    std::shared_ptr<const std::string> error;
    double met = 0;  // when the last member had arrived
  };
  struct Round {  // of one group
    std::vector<int> group;
    std::vector<Member*> members;  // by index in the group; null: not arrived
    std::size_t arrived = 0;
    std::condition_variable changed;
    // Fixed while members work:
    std::vector<std::byte*> buffers;
    std::int64_t count = 0, chunks = 0;
    DType dtype = DType::f32;
    std::atomic<std::int64_t> next_chunk{0}, folded_chunks{0};
    std::atomic<std::size_t> working{0};  // members that can still read the fields above
  };

  void join(std::span<const int> group, std::size_t index, Member& mine, const AbortFlag& abort,
            const Help* help);
  Round& round_of(std::span<const int> group);
  void refuse_crossed_groups(const Round& mine, int rank) const;
  std::shared_ptr<const std::string> disagreement(const Round& round) const;
  static void start(Round& round);
  static void work(Round& round);
  static void finish(Round& round, const std::shared_ptr<const std::string>& error);

  const std::uint64_t channel_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Round>> rounds_;
};

}  // namespace tandem::engine
