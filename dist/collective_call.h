// The parts of MessageComm: its calls, their memory, and the algorithms of its collectives. Only
// dist/message_comm.cpp and dist/collective_*.cpp include this file.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include <tandem/core/base/memory.h>
#include <tandem/core/base/types.h>
#include <tandem/dist/group.h>
#include <tandem/dist/stream.h>
#include <tandem/dist/transport.h>
#include <tandem/dist/wait.h>
#include <tandem/dist/workers.h>

namespace tandem::engine {

enum class CallKind : std::uint32_t { transfer, all_reduce, reduce_scatter, all_gather, broadcast, barrier };

/// What the ends of a call must agree on.
struct CallFacts {
  std::uint64_t channel;
  std::int64_t count;    // elements; bytes of a transfer or broadcast
  std::int64_t segment;  // bytes
  CallKind kind;
  DType dtype;
  std::int32_t root;
  bool operator==(const CallFacts&) const = default;
};

/// The first message of every call: its facts, and what it sends to the peer first, if that is short.
struct FirstMessage {
  static constexpr std::int64_t kInlineBytes =
      16 << 10;  // short data is copied; for longer data, moving it in place repays the extra message
  CallFacts facts;
  alignas(8) std::byte data[kInlineBytes];
};
inline constexpr std::size_t kHeaderBytes = offsetof(FirstMessage, data);

/// The memory that one call needs in addition to the caller's buffer; later calls reuse it.
struct Scratch {
  std::vector<FirstMessage> out;
  std::vector<FirstMessage> in;                     // per peer that sends one
  std::vector<Transport::Request> sends, receives;  // of the first messages
  std::vector<char> come;                           // whether the first message is here
  std::vector<Stream> streams;
  std::vector<const std::byte*> sources;  // of the fold, by member
  Buffer ring;                            // segments that were received and not yet folded

  /// Makes room for the first messages of `peers` and for this many streams.
  void fit(std::size_t peers, std::size_t streams);
  void reserve_ring(std::int64_t bytes) {
    if (ring.bytes() < bytes) ring = Buffer(bytes);
  }
  /// After an error.
  void give_up(Transport& transport) noexcept;
};

/// A pool of Scratch objects; at most one call uses each at a time.
class ScratchPool {
 public:
  Scratch& take();
  void give_back(Scratch& scratch);

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Scratch>> all_;
  std::vector<Scratch*> free_;
};

/// One call of one rank.
struct Call {
  CallKind kind;
  std::byte* data;
  std::int64_t count;  // elements
  DType dtype;
  std::span<const int> group;  // of a transfer: the peer alone
  std::size_t me;              // index in the group
  std::size_t root;            // index in the group, of a broadcast
  std::uint64_t channel;
  std::int64_t segment;  // bytes
  int threads;
  Transport& transport;
  Workers& workers;
  Scratch& scratch;

  std::int64_t bytes() const { return count * size_of(dtype); }
  std::size_t members() const { return group.size(); }
  bool sums() const { return kind == CallKind::all_reduce || kind == CallKind::reduce_scatter; }
  bool gathers() const {
    return kind == CallKind::all_reduce || kind == CallKind::all_gather || kind == CallKind::broadcast;
  }
  /// Where, in bytes, the slice of member `i` begins. In a broadcast, everything is the root's slice.
  std::int64_t begin(std::size_t i) const {
    if (kind == CallKind::broadcast) return i <= root ? 0 : bytes();
    return slice_begin(i, members(), count) * size_of(dtype);
  }
  std::int64_t slice_bytes(std::size_t i) const { return begin(i + 1) - begin(i); }
  Transport::Route route(std::size_t member, Transport::Part part) const {
    return {group[member], channel, part};
  }

  CallFacts facts() const;
  /// Sends the first message to a member, with the `bytes` at `from`. It uses place `i` of the scratch.
  void send_first(std::size_t i, const Transport::Route& to, const std::byte* from = nullptr,
                  std::int64_t bytes = 0);
  void receive_first(std::size_t i, const Transport::Route& from);
  /// Throws Error unless the peer's first message states the same call.
  void check_first_message(const FirstMessage& theirs, int peer) const;
  /// Folds `bytes` of `scratch.sources`, in their order, into `sums`, by several threads of this rank.
  void fold(std::byte* sums, std::int64_t bytes) const;

  /// Calls `look_at_messages` until it finds everything finished, and sleeps longer and longer while nothing
  /// moves. A peer may wait for any progress, so each progress wakes the peers.
  template <class F> void progress(F look_at_messages) {
    Backoff backoff(transport.bell(channel), all_can_ring());
    for (;;) {
      backoff.look();
      Look look;
      look_at_messages(look);
      if (look.moved || look.finished) ring_peers();
      if (look.finished) return;
      if (look.moved) {
        backoff.reset();
        continue;
      }
      transport.throw_if_aborted(backoff.long_wait());
      backoff.pause(look.due);
    }
  }

 private:
  bool all_can_ring() const;
  void ring_peers() const;
};

/// Every member owns a slice of the data. Every other member sends it that slice; it folds the slice in rank
/// order and sends the sums to all. Returns the time when all members had called.
double run_direct(Call& call);

/// Chunks travel from the first member to the last, and each adds its own; then the sums travel on, from the
/// last member to the first and to those after it. Each member talks to two others. Returns the time when
/// this member knew that all had called.
double run_ring(Call& call);

}  // namespace tandem::engine
