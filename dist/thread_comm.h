#pragma once
#include <memory>
#include <string>
#include <vector>

#include <tandem/core/runtime/comm.h>

namespace tandem::engine {

/// Ranks that are threads of one process: for tests, teaching, and pipelines on one machine. A rank may
/// itself use several threads (lanes), each on channels of its own.
///
/// An all-reduce and a transfer wait, asleep, until every end has called; then the bytes are moved between
/// the callers' buffers themselves, with no copy between. Ends that disagree on size, element type or group
/// all get an Error naming ranks, channel and sizes. Nothing is allocated once a channel has been used.
class ThreadWorld {
 public:
  /// Throws Error unless `size` >= 1.
  explicit ThreadWorld(int size);
  int size() const;
  /// The Comm of one rank, usable from any thread; it may outlive the world. Throws Error on a bad rank.
  std::unique_ptr<Comm> comm(int rank) const;
  /// As Comm::abort of any rank: every call that still waits for another rank throws Aborted, and so does
  /// every later call.
  void abort(const std::string& reason) const;

  struct State;

 private:
  std::shared_ptr<State> state_;
};

/// For a Session whose ranks are threads of this process: the Comm of each of them; none for a single rank.
std::vector<std::unique_ptr<Comm>> thread_comms(int ranks);

}  // namespace tandem::engine
