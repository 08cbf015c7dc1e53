#pragma once
#include <cstdint>
#include <memory>

#include <tandem/core/runtime/comm.h>
#include <tandem/dist/launch.h>

namespace tandem::engine {

struct MpiOptions {
  /// Long all-reduces move and sum pieces of this many bytes (rounded to 64); twice that per peer is scratch.
  std::int64_t segment_bytes = 512 << 10;
  /// Transfers are cut into messages of at most this many bytes; MPI itself cannot count past 2^31 − 1.
  std::int64_t message_bytes = 1 << 30;
};

/// True when Tandem was built with MPI.
bool has_mpi();

/// MPI for as long as it lives: one in main(), outliving every Comm it made, destroyed by the thread that
/// made it. After an abort MPI is left as it is, since finalizing would wait for ranks that are gone.
class MpiSession {
 public:
  /// Initializes MPI for calls from several threads at once, or joins an MPI that the program initialized.
  /// Throws Error when built without MPI, when MPI lacks thread support, was finalized before, or does not
  /// see the ranks that the launcher announced.
  MpiSession();
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  int rank() const;
  int size() const;
  int local_rank() const;

  /// A Comm over all ranks; every rank makes as many, in the same order, with equal options. A waiting call
  /// sleeps: ranks of its machine wake it by a doorbell in shared memory, what others send is found by
  /// polling, at least once a millisecond. `abort` wakes the lanes of this rank at once and tells the others,
  /// who look for it while they wait. After Error or Aborted end the job (`end_mpi_job`): a transfer that was
  /// under way may still touch the call's buffer.
  ///
  /// Channels below 2^30 (half of MPI's largest tag) have a tag each; larger ones are hashed, and one that
  /// meets the tag of another is refused with an Error.
  std::unique_ptr<Comm> comm(const MpiOptions& options = {});

  struct State;

 private:
  std::shared_ptr<State> state_;
};

/// Ends this process and every other rank of the job with exit status `code`. For main() only, after an
/// error: nothing is unwound or flushed.
[[noreturn]] void end_mpi_job(int code);

}  // namespace tandem::engine
