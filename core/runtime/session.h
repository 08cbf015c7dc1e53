#pragma once
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <tandem/core/graph/kernel.h>
#include <tandem/core/graph/tensor.h>
#include <tandem/core/runtime/comm.h>
#include <tandem/core/runtime/cpu_backend.h>
#include <tandem/core/runtime/executable.h>
#include <tandem/core/runtime/host.h>
#include <tandem/core/schedule/program.h>

namespace tandem::engine {

struct SessionOptions {
  const KernelTable* kernels = &cpu_kernels();
  std::size_t spans = 0;           ///< executions per lane that `timeline` holds
  bool poison = false;             ///< fill freed and fresh memory with NaN
  std::int64_t memory_budget = 0;  ///< bytes per device for all Programs together; 0: no limit
};

/// Programs on the ranks of this process: their memory, their lanes, their state between runs.
/// Ranks are threads of it, or, where one Comm of several processes is given, one of them is this process.
class Session {
 public:
  /// Verifies the Program. `host` must outlive the session. `comms`: that of this process (MpiSession), or
  /// for ranks that are threads one for each; with none these have a ThreadWorld's. Throws Error when the
  /// ranks disagree on the Program, naming those that do.
  Session(Program program, std::vector<std::unique_ptr<Comm>> comms, Host& host, SessionOptions options = {});
  ~Session();

  /// Another Program for the same ranks and the same model: evaluation, other shapes. Returns its number, for
  /// `run`. The Programs take turns on the ranks' memory, state and lanes. Throws Error as the constructor
  /// does, where a state is not in the first Program, or would lie elsewhere, and where the Programs
  /// together need more than the budget. Where ranks are processes all of them must call.
  int add(Program program, Host& host);

  /// Gives up what a Program holds beside the shared memory: its kernels. It cannot run again; its number may
  /// become another's. Throws Error where there is none of this number.
  void drop(int program);

  /// One that was not dropped; of the first what is said of states stays.
  const Program& program(int number = 0) const { return *programs_.at(static_cast<std::size_t>(number)); }

  /// Sets state by path, on every local rank that holds it; before the first run, or between runs. What is
  /// not named and belongs to the optimizer (its path begins with kOptimizerPath) starts at zero, and is left
  /// out by a Program without an optimizer; anything else missing, mismatched or unknown is an Error, and
  /// then nothing is set.
  void load(const StateDict& state);
  /// The whole state, as replica 0 holds it. Where ranks are processes all of them must call, and `root`
  /// alone gets what is not its own. Tensors of an earlier such state, `into`, are filled again where nobody
  /// else uses them any more. Throws Error before `load`, and where the last run failed.
  StateDict state(int root = 0, StateDict&& into = {}) const;
  /// Is all that the ranks of this process hold of the state finite?
  bool is_finite() const;
  /// What is left of the state when a run has failed, of no batch in particular: for a look at the cause.
  /// Where ranks are processes all of them must call, through another Comm than the session's, which is of no
  /// use any more.
  StateDict remains(int root = 0, Comm* through = nullptr) const;

  /// By path, for each rank of this process: what it holds, between runs.
  using Snapshot = std::vector<StateDict>;
  /// A copy of the state, for `restore`: made without a word to other processes, and with what each replica
  /// gathered for itself.
  Snapshot snapshot() const;
  void restore(const Snapshot& snapshot);

  /// Runs `batches` batches, the first of them numbered `first_batch`, from empty to drained. A Program that
  /// assigns no state evaluates what `state` returns: replicas then get the untrained state of replica 0,
  /// such as running statistics, which each gathers from samples of its own. Throws what the first failing
  /// rank threw. The state is lost then, and must be loaded before another run; where there are several ranks
  /// their Comms are of no more use either, and another Session must go on. Programs, loads and runs are
  /// taken between runs alone: what a host or a kernel asks for during one is an Error, and changes nothing.
  void run(std::int64_t first_batch, std::int64_t batches, int program = 0);

  /// Makes a `run` end soon with Aborted(reason) here and on all ranks that can be reached; from any thread,
  /// while no Program is added. Where nothing runs, the next run ends so.
  void stop(const std::string& reason);

  /// What the ranks of this process are executing just now, from any thread: "rank 1: batch 17, instruction
  /// 'block2 receive' of module 'block2'", a line a lane. Not while a Program is added.
  std::string doing() const;

  /// Spans of the first Program measured since the last call, and how many were dropped, of all ranks, by the
  /// global Program's instructions. Where ranks are processes all of them must call, and `root` gets the
  /// whole; clocks of different machines are not compared.
  Timeline timeline(int root = 0);
  // Of the stage and Program that need most, in bytes.
  std::int64_t planned_peak() const;  ///< of the work and state arenas
  std::int64_t live_peak() const;     ///< of state and live work
  /// Bytes touched, by the rank and Program that touched most. Where ranks are processes all of them must
  /// call, and `root` gets the maximum.
  std::int64_t executed_peak(int root = 0) const;

 private:
  struct Rank;
  void check(const Program& program) const;
  void require(int program) const;  // that there is one of this number
  std::int64_t planned_peak_with(const Program* next) const;
  void share_untrained_state();
  void run_ranks(std::int64_t first_batch, std::int64_t batches, int program);
  void require_idle() const;
  void begin_run(int program);
  void end_run();
  StateDict gathered(int root, Comm* through, const StateDict& into) const;
  void collect(Comm& comm, int root, StateDict& state, const StateDict& into) const;
  SessionOptions options_;
  double origin_;         // of timelines
  bool loaded_ = false;   // there is a state to run on
  bool apart_ = false;    // replicas may differ in untrained state
  std::string given_up_;  // why the ranks' Comms are of no more use
  mutable std::mutex stop_mutex_;
  int running_ = -1;                                      // the Program that runs
  std::exception_ptr stop_;                               // asked for, and not yet thrown
  std::vector<std::unique_ptr<const Program>> programs_;  // null: dropped
  std::vector<std::unique_ptr<Comm>> comms_;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

}  // namespace tandem::engine
