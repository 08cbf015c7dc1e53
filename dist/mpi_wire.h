// The parts of MpiTransport. Only dist/mpi_comm.cpp includes this file, and no other file of the library
// includes MPI.
#pragma once
#ifdef TANDEM_HAS_MPI
#define OMPI_SKIP_MPICXX
#define MPICH_SKIP_MPICXX
#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <new>
#include <string>
#include <unordered_map>
#include <vector>

#include <fmt/format.h>

#include <tandem/core/base/error.h>
#include <tandem/dist/doorbell.h>

namespace tandem::engine::mpi_wire {

inline void check(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw Error(fmt::format("{}: {}", call, text));
}

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
