// The parts of MpiComm. Only dist/mpi_comm.cpp includes this file, and no other file includes MPI.
#pragma once
#ifdef TANDEM_HAS_MPI
#define OMPI_SKIP_MPICXX
#define MPICH_SKIP_MPICXX
#include <mpi.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include <fmt/format.h>

#include <tandem/core/base/error.h>
#include <tandem/core/base/memory.h>
#include <tandem/core/base/types.h>
#include <tandem/dist/doorbell.h>
#include <tandem/dist/wait.h>

namespace tandem::engine::mpi_wire {

inline void check(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw Error(fmt::format("{}: {}", call, text));
}

enum class Kind : std::uint32_t { transfer, all_reduce, barrier };

// The first message of every call: the facts that both ends must agree on, and the data if it is short.
struct FirstMessage {
  static constexpr std::int64_t kInlineBytes =
      16 << 10;  // short data is copied; for longer data, moving it in place repays the extra message
  std::uint64_t channel;
  std::int64_t count;  // elements, or bytes of a transfer
  Kind kind;
  DType dtype;
  alignas(8) std::byte data[kInlineBytes];
};
constexpr std::size_t kHeaderBytes = offsetof(FirstMessage, data);

inline std::string describe(const FirstMessage& m, bool sending) {
  switch (m.kind) {
    case Kind::transfer: return fmt::format("{} {} bytes", sending ? "sends" : "receives", m.count);
    case Kind::all_reduce: return fmt::format("sums {} {} over the ranks", m.count, name_of(m.dtype));
    case Kind::barrier: return "enters a barrier";
  }
  return "?";
}

struct Route {
  MPI_Comm comm;
  int peer;
  int tag;
};

/// A long message to or from one peer. Its segments are posted and completed in order, kWindow at a time.
class Stream {
 public:
  static constexpr std::int64_t kWindow = 2;

  /// With `ring`, the buffer holds only kWindow segments, used in turn.
  Stream(Route route, bool sending, std::byte* base, std::int64_t bytes, std::int64_t segment,
         bool ring = false)
      : route_(route),
        sending_(sending),
        ring_(ring),
        base_(base),
        bytes_(bytes),
        segment_(segment),
        segments_((bytes + segment - 1) / segment) {
    requests_.fill(MPI_REQUEST_NULL);
  }
  std::int64_t segments() const { return segments_; }
  std::int64_t completed() const { return completed_; }
  bool finished() const { return completed_ == segments_; }
  std::byte* at(std::int64_t s) const { return base_ + (ring_ ? s % kWindow : s) * segment_; }
  std::int64_t bytes_of(std::int64_t s) const { return std::min(segment_, bytes_ - s * segment_); }

  /// Posts segments numbered below `limit` and looks for completed ones. Returns true if anything happened.
  bool advance(std::int64_t limit) {
    const std::int64_t before = posted_ + completed_;
    for (; posted_ < std::min({limit, segments_, completed_ + kWindow}); ++posted_) post(posted_);
    for (int flag = 1; completed_ < posted_; ++completed_) {
      check(MPI_Test(&requests_[static_cast<std::size_t>(completed_ % kWindow)], &flag, MPI_STATUS_IGNORE),
            "MPI_Test");
      if (!flag) break;
    }
    return posted_ + completed_ != before;
  }
  std::span<MPI_Request> requests() { return requests_; }

 private:
  void post(std::int64_t s) {
    MPI_Request& request = requests_[static_cast<std::size_t>(s % kWindow)];
    const int length = static_cast<int>(bytes_of(s));
    if (sending_)
      check(MPI_Isend(at(s), length, MPI_BYTE, route_.peer, route_.tag, route_.comm, &request), "MPI_Isend");
    else
      check(MPI_Irecv(at(s), length, MPI_BYTE, route_.peer, route_.tag, route_.comm, &request), "MPI_Irecv");
  }

  Route route_;
  bool sending_, ring_;
  std::byte* base_;
  std::int64_t bytes_, segment_, segments_;
  std::int64_t posted_ = 0, completed_ = 0;
  std::array<MPI_Request, kWindow> requests_;
};

/// The memory that one call needs in addition to the caller's buffer; later calls reuse it.
struct Scratch {
  FirstMessage out;
  std::vector<FirstMessage> in;              // per member of the group; a transfer has one
  std::vector<MPI_Request> sends, receives;  // of the first messages, by member
  std::vector<Stream> streams;
  std::vector<const std::byte*> sources;  // of the fold, by member
  Buffer ring;                            // segments that were received and not yet folded

  void fit(std::size_t members) {
    if (in.size() < members) in.resize(members);
    sends.assign(members, MPI_REQUEST_NULL);
    receives.assign(members, MPI_REQUEST_NULL);
    sources.assign(members, nullptr);
    streams.clear();
    streams.reserve(4 * members);
  }
  /// After an error: cancels the pending messages and waits up to a tenth of a second for MPI to end them.
  void give_up() noexcept {
    std::vector<MPI_Request> pending(receives);
    pending.insert(pending.end(), sends.begin(), sends.end());
    for (Stream& s : streams) pending.insert(pending.end(), s.requests().begin(), s.requests().end());
    for (MPI_Request& request : pending)
      if (request != MPI_REQUEST_NULL) MPI_Cancel(&request);
    int all = 0;
    for (int attempt = 0; attempt < 100 && !all; ++attempt) {
      if (MPI_Testall(static_cast<int>(pending.size()), pending.data(), &all, MPI_STATUSES_IGNORE) !=
          MPI_SUCCESS)
        return;
      if (!all) sleep_until(std::chrono::steady_clock::now() + std::chrono::milliseconds(1));
    }
  }
};

/// A pool of Scratch objects; at most one call uses each at a time.
class ScratchPool {
 public:
  Scratch& take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) {
      all_.push_back(std::make_unique<Scratch>());
      free_.reserve(all_.size());
      return *all_.back();
    }
    Scratch& scratch = *free_.back();
    free_.pop_back();
    return scratch;
  }
  void give_back(Scratch& scratch) {
    const std::lock_guard lock(mutex_);
    free_.push_back(&scratch);
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Scratch>> all_;
  std::vector<Scratch*> free_;
};

/// A separate message context of MPI: a message sent in one context cannot be received in another.
class Context {
 public:
  Context() {
    check(MPI_Comm_dup(MPI_COMM_WORLD, &comm_), "MPI_Comm_dup");
    check(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  }
  ~Context() { MPI_Comm_free(&comm_); }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  operator MPI_Comm() const { return comm_; }

 private:
  MPI_Comm comm_ = MPI_COMM_NULL;
};

/// Doorbells of every rank of this machine, in shared memory. Each rank has several, so that the traffic of
/// other channels seldom wakes a lane.
class Bells {
 public:
  /// Collective over all ranks.
  Bells() {
    MPI_Comm machine = MPI_COMM_NULL;
    check(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine),
          "MPI_Comm_split_type");
    void* memory = nullptr;
    check(MPI_Win_allocate_shared(kBells * sizeof(Padded), 1, MPI_INFO_NULL, machine, &memory, &window_),
          "MPI_Win_allocate_shared");
    own_ = static_cast<Padded*>(memory);
    for (std::size_t b = 0; b < kBells; ++b) new (own_ + b) Padded;
    int size = 0, local_size = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_size(machine, &local_size);
    bells_.resize(static_cast<std::size_t>(size), nullptr);
    MPI_Group world_group, local_group;
    MPI_Comm_group(MPI_COMM_WORLD, &world_group);
    MPI_Comm_group(machine, &local_group);
    for (int local = 0; local < local_size; ++local) {
      int rank = 0, unit = 0;
      MPI_Aint bytes = 0;
      MPI_Group_translate_ranks(local_group, 1, &local, world_group, &rank);
      check(MPI_Win_shared_query(window_, local, &bytes, &unit, &memory), "MPI_Win_shared_query");
      bells_[static_cast<std::size_t>(rank)] = static_cast<Padded*>(memory);
    }
    MPI_Group_free(&world_group);
    MPI_Group_free(&local_group);
    MPI_Barrier(machine);  // so that no rank rings a bell before it exists
    MPI_Comm_free(&machine);
  }
  /// Collective too. Call it only in an orderly end; otherwise the end of the process frees the memory.
  void free() { MPI_Win_free(&window_); }
  Doorbell& own(std::uint64_t channel) { return own_[place(channel)].bell; }
  bool has(int rank) const { return bells_[static_cast<std::size_t>(rank)] != nullptr; }
  void ring(int rank, std::uint64_t channel) {
    if (has(rank)) bells_[static_cast<std::size_t>(rank)][place(channel)].bell.ring();
  }
  void ring_all(int rank) {
    for (std::uint64_t b = 0; has(rank) && b < kBells; ++b)
      bells_[static_cast<std::size_t>(rank)][b].bell.ring();
  }

 private:
  struct Padded {  // one cache line; not alignas(64), since MPI aligns its shared memory to 8 bytes only
    Doorbell bell;
    std::byte rest[64 - sizeof(Doorbell)];
  };
  static constexpr std::size_t kBells = 64;
  static std::size_t place(std::uint64_t channel) { return (channel * 0x9e3779b97f4a7c15u) >> 58; }

  MPI_Win window_ = MPI_WIN_NULL;
  Padded* own_ = nullptr;
  std::vector<Padded*> bells_;  // by rank; null on another machine
};

/// Maps channels to MPI tags, without collisions.
class Tags {
 public:
  Tags() {
    int* bound = nullptr;
    int found = 0;
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &bound, &found);
    direct_ = (static_cast<std::uint64_t>(found ? *bound : 32767) + 1) / 2;
  }
  int of(std::uint64_t channel) {
    if (channel < direct_) return static_cast<int>(channel);
    const std::uint64_t tag = direct_ + (channel * 0x9e3779b97f4a7c15u >> 20) % direct_;
    const std::lock_guard lock(mutex_);
    const auto [entry, fresh] = hashed_.try_emplace(tag, channel);
    if (entry->second != channel)
      throw Error(fmt::format("channels {} and {} share MPI tag {}: number the channels below {}",
                              entry->second, channel, tag, direct_));
    return static_cast<int>(tag);
  }

 private:
  std::uint64_t direct_;
  std::mutex mutex_;
  std::unordered_map<std::uint64_t, std::uint64_t> hashed_;
};

}  // namespace tandem::engine::mpi_wire
#endif
