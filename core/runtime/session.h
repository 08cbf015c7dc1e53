#pragma once
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <tandem/core/graph/kernel.h>
#include <tandem/core/graph/tensor.h>
#include <tandem/core/runtime/comm.h>
#include <tandem/core/runtime/host.h>
#include <tandem/core/runtime/local_rank.h>
#include <tandem/core/runtime/run_limit.h>
#include <tandem/core/runtime/session_state.h>
#include <tandem/core/runtime/timeline.h>
#include <tandem/core/schedule/program.h>

namespace tandem::engine {

struct SessionOptions {
  const KernelTable* kernels = nullptr;  ///< null: those that each Program was built for
  std::size_t spans = 0;                 ///< executions per lane of the first Program that `timeline` holds
  bool poison = false;                   ///< fill freed and fresh memory with NaN
  std::int64_t memory_budget = 0;        ///< bytes per device for all Programs together; 0: no limit
};

class Session;

/// Names one of a Session's Programs. The default names the first Program of any Session.
class ProgramHandle {
 public:
  ProgramHandle() = default;
  bool operator==(const ProgramHandle&) const = default;

 private:
  friend class Session;
  ProgramHandle(const Session* session, int number) : session_(session), number_(number) {}
  const Session* session_ = nullptr;
  int number_ = 0;
};

/// Runs Programs on the ranks of this process, which keep their memory, lanes and state between runs. Ranks
/// are threads of this process; or this process is one rank, if it is given one Comm of several processes.
/// SessionState (session_state.h) keeps the state; session_telemetry.h collects what ran.
class Session {
 public:
  /// Verifies the Program. `host` must outlive the session. `comms`: the Comm of this process (MpiSession);
  /// or one Comm per rank if ranks are threads (`thread_comms`); or none for a single rank. Throws Error if
  /// the ranks disagree on the Program, naming the ranks that do.
  Session(Program program, std::vector<std::unique_ptr<Comm>> comms, Host& host, SessionOptions options = {});
  ~Session();

  /// Adds another Program for the same ranks and the same model, such as evaluation or other shapes. The
  /// Programs use the ranks' memory, state and lanes in turn. Throws Error as the constructor does; if a
  /// state is not in the first Program, or would lie elsewhere; and if the Programs together exceed the
  /// budget. If ranks are processes, all of them must call.
  ProgramHandle add(Program program, Host& host);
  /// Frees what a Program holds apart from the shared memory: its kernels. The Program cannot run again.
  /// Throws Error if there is no such Program.
  void drop(ProgramHandle program);
  /// A Program that was not dropped. The first can be dropped and still be asked for: it says where states
  /// lie.
  const Program& program(ProgramHandle handle = {}) const;

  /// Sets the state by path, on every local rank that holds it; before the first run, or between runs. The
  /// optimizer's states (their paths begin with kOptimizerPath) start at zero if they are missing, and a
  /// Program without an optimizer ignores them. Throws Error if anything else is missing, has another type or
  /// is unknown; then nothing is set.
  void load(const StateDict& state);
  /// Returns whether there is a state: it was loaded, and no run lost it.
  bool has_state() const { return loaded_; }
  /// The whole state, as replica 0 holds it. If ranks are processes, all of them must call, and `root` alone
  /// gets the states that other ranks hold. Tensors of `into`, an earlier state, are filled again if nothing
  /// else uses them. Throws Error before `load`, and if the last run failed.
  StateDict state(int root = 0, StateDict&& into = {}) const;
  /// Returns a state's place in the first Program's `states`, or −1. The following functions name it so.
  StateId find_state(const std::string& path) const { return state_.find(path); }
  /// Copy the elements that one model has of a state; models are counted from 0. Without communication: the
  /// state must lie on a rank of this process. Throw Error during a run, as `state` does, and unless `bytes`
  /// is as long as the model's part.
  void read(StateId state, std::size_t model, std::span<std::byte> bytes) const;
  void write(StateId state, std::size_t model, std::span<const std::byte> bytes);
  /// The states that a Program changes.
  const std::vector<StateId>& written(ProgramHandle program = {}) const;
  /// Is all state finite that the ranks of this process hold?
  bool is_finite() const { return state_.is_finite(); }
  /// What is left of the state after a failed run, to look for the cause; it belongs to no batch. If ranks
  /// are processes, all of them must call with another Comm, since the session's are aborted.
  StateDict remains(int root = 0, Comm* through = nullptr) const;

  /// Copies the state that each local rank holds, with what each replica computed for itself; without
  /// communication. Throws Error before `load`, and if the last run failed.
  using Snapshot = SessionState::Snapshot;
  Snapshot snapshot() const;
  void restore(const Snapshot& snapshot);

  /// Runs `batches` batches from empty to drained; the first has the number `first_batch`. A Program that
  /// assigns no state evaluates what `state` returns: before it runs, all replicas get the untrained state of
  /// replica 0. Throws what the first failing rank threw. If that was before the first update, the
  /// state is as it was before the run; otherwise, and if ranks are processes, it is lost and must be loaded
  /// before another run. If there are several ranks, their Comms are aborted, and a new Session must
  /// continue. A host or a kernel cannot add, load or run during a run: that throws Error and changes
  /// nothing. A limit can end the run earlier, as long as it lasts. Returns how many batches ran.
  std::int64_t run(std::int64_t first_batch, std::int64_t batches, ProgramHandle program = {},
                   RunLimit* limit = nullptr);

  /// Makes a `run` end soon with Aborted(reason), here and on all ranks that can be reached. Any thread may
  /// call. If nothing runs, the next run ends so.
  void stop(const std::string& reason);

  /// Throws what `stop` asked for, if no run has thrown it yet. Before a Session ends that may have been
  /// asked to stop while nothing ran.
  void throw_if_stopped();

  /// What the ranks of this process, or one of them, execute at this moment (session_telemetry.h). Any thread
  /// may call.
  std::string doing(std::optional<int> rank = {}) const;
  /// Sets how many threads of a rank work on each collective of the next runs of a Program, by channel; the
  /// others keep theirs. Nothing is planned or prepared again, and no bit of the results changes. If ranks
  /// are processes, each sets its own. Throws Error during a run, if a channel is of no collective, or if a
  /// number is not above 0.
  void set_threads(const std::map<std::int64_t, int>& by_channel, ProgramHandle program = {});
  /// Sets how many executions per lane the next runs of a Program measure, on the ranks of this process; 0:
  /// none. The first begins with SessionOptions::spans, the others with none. What was measured and not
  /// fetched is lost. Throws Error during a run.
  void measure(std::size_t spans, ProgramHandle program = {});
  /// Spans of a Program since the last call, of all ranks, by the global Program's instructions. If ranks are
  /// processes, all of them must call, and `root` gets the whole. Clocks of different machines are not
  /// compared.
  Timeline timeline(int root = 0, ProgramHandle program = {});
  /// Bytes of the work and state arenas, on the stage that needs most.
  std::int64_t planned_peak() const;
  /// Bytes of state and live work, of the stage and Program that need most.
  std::int64_t live_peak() const;
  /// Bytes touched, also by Programs that were dropped, on the rank that touched most. If ranks are
  /// processes, all of them must call, and `root` gets the maximum.
  std::int64_t executed_peak(int root = 0) const;

 private:
  struct Added {
    std::shared_ptr<const Program> program;
    std::vector<StateId> written, written_forward;  // states; the latter by forward, as running means are
  };
  ProgramHandle prepare(const std::shared_ptr<const Program>& program, Host& host);
  void check(const Program& program) const;
  void require(ProgramHandle program) const;
  void require_memory(const std::vector<const Program*>& all, bool is_first) const;
  void require_state() const;
  void require_idle() const;
  std::vector<const Program*> sharing_memory() const;
  Comm* processes() const;
  std::int64_t run_ranks(std::int64_t first_batch, std::int64_t batches, int program, RunLimit* limit);
  bool updated(int program) const;
  void begin_run(int program);
  void end_run();

  const SessionOptions options_;
  const double origin_;  // of timelines
  const std::vector<std::unique_ptr<Comm>> comms_;
  LocalRanks ranks_;
  const std::shared_ptr<const Program> first_;
  std::map<int, Added> programs_;  // by number, without those that were dropped
  int added_ = 0;                  // how many there were
  SessionState state_;
  bool loaded_ = false;         // there is a state to run on
  bool apart_ = false;          // replicas may differ in untrained state
  std::string aborted_reason_;  // why the ranks' Comms cannot be used any more
  mutable std::mutex mutex_;  // guards what follows, and which Programs the ranks have, against other threads
  int running_ = -1;          // the number of the Program that runs
  std::exception_ptr stop_;   // requested, and not yet thrown
};

}  // namespace tandem::engine
