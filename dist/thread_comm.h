#pragma once
#include <memory>
#include <string>
#include <vector>

#include <tandem/core/runtime/comm.h>
#include <tandem/dist/comm_options.h>

namespace tandem::engine {

/// A world whose ranks are threads of one process, for tests, teaching, and pipelines on one machine. A rank
/// can use several threads (lanes), each on its own channels.
///
/// An all-reduce or transfer sleeps until every end has called; then the bytes move directly between the
/// callers' buffers, with no copy in between. If ends disagree on size, element type or group, each gets an
/// Error naming ranks, channel and sizes. After its first use a channel allocates nothing.
///
/// With a link in their CommOptions, calls also sleep as long as the link takes. With a ring,
/// ranks exchange messages instead, as ranks of several processes do.
class ThreadWorld {
 public:
  /// Throws Error unless `size` >= 1.
  explicit ThreadWorld(int size);
  int size() const;
  /// Returns the Comm of one rank. Any thread can use it, and it can outlive the world. All ranks need equal
  /// options. Throws Error unless 0 <= `rank` < size().
  std::unique_ptr<Comm> comm(int rank, const CommOptions& options = {}) const;
  /// Does what Comm::abort of any rank does: every call that waits for another rank throws Aborted, and so
  /// does every later call.
  void abort(const std::string& reason) const;

  struct State;

 private:
  std::shared_ptr<State> state_;
};

/// Returns the Comm of each rank, for a Session whose ranks are threads of this process; empty for one rank.
std::vector<std::unique_ptr<Comm>> thread_comms(int ranks, const CommOptions& options = {});

}  // namespace tandem::engine
