#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include <tandem/core/base/error.h>
#include <tandem/core/runtime/comm.h>
#include <tandem/core/runtime/gather.h>
#include <tandem/dist/comm_options.h>
#include <tandem/dist/launch.h>

namespace tandem::engine {

/// How long the ranks wait for each other when MPI starts and ends, when it makes Comms, and in
/// `MpiSession::agree` (first_meeting.h). In other calls a watch limits the wait (CommOptions::watch).
struct MpiStart {
  std::chrono::milliseconds patience{10'000};   ///< until one rank tells who is missing
  std::chrono::milliseconds deadline{600'000};  ///< until the process ends
  std::function<void(const std::string&)> tell = print_warning;
};

/// Returns true if Tandem was built with MPI.
bool has_mpi();

/// Keeps MPI initialized during its lifetime. Make one in main(). It must outlive every Comm that it made,
/// and the thread that made it must destroy it. After an abort it does not finalize MPI, because that would
/// wait for ranks that are gone.
class MpiSession {
 public:
  /// Initializes MPI for calls from several threads at once, unless the program has initialized MPI already.
  /// Throws Error if Tandem was built without MPI, or if MPI lacks thread support, was finalized before, or
  /// has another number of ranks than the launcher announced. Ends the process if not all ranks come. If there
  /// are several, ignores SIGPIPE, unless the program handles it.
  explicit MpiSession(const MpiStart& start = {});
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  int rank() const;
  int size() const;
  int local_rank() const;
  /// Returns how many ranks of this machine, this one included, may run on a core on which the calling thread
  /// may run. Every rank must call it. Ends the process if not all ranks come, as the constructor does.
  int ranks_on_these_cores();

  /// Throws Error, on every rank, unless all ranks give the same values (gather.h). Every rank must call it.
  /// Ends the process if not all ranks come, as the constructor does.
  void agree(std::span<const Agreed> mine);

  /// Returns a Comm over all ranks. Every rank must make the same number of Comms, in the same order, with
  /// equal options. A waiting call sleeps: ranks on its machine wake it by a doorbell in shared memory; it
  /// polls for messages of other ranks, at least once per millisecond. `abort` wakes the lanes of this rank
  /// at once and tells the other ranks, which check for it while they wait. After Error or Aborted, end the
  /// job (`end_mpi_job`): a transfer that was under way can still touch the call's buffer.
  ///
  /// Each channel below 2^30 (half of MPI's largest tag) has its own tag. Larger channels are hashed to tags;
  /// a channel whose tag another channel has throws Error.
  std::unique_ptr<Comm> comm(const CommOptions& options = {});
  /// The watch of this rank, if a Comm that was made with CommOptions::watch, or after it, still exists;
  /// else null.
  std::shared_ptr<CollectiveWatch> watch() const;

  struct State;

 private:
  std::shared_ptr<State> state_;
};

/// Ends this process and every other rank of the job with exit status `code`. Call it only after an
/// error: it unwinds and flushes nothing.
[[noreturn]] void end_mpi_job(int code);

}  // namespace tandem::engine
