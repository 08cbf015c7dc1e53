#pragma once
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <tandem/core/base/error.h>
#include <tandem/core/runtime/comm.h>
#include <tandem/dist/collective_record.h>
#include <tandem/dist/transport.h>

namespace tandem::engine {

struct WatchOptions {
  /// How long a call may wait. It must be longer than the longest step.
  std::chrono::milliseconds deadline{600'000};
  /// Where each rank writes collectives-RANK.jsonl. If it is empty, or no directory of this machine, the rank
  /// tells its last calls.
  std::string directory{};
  std::function<void(const std::string&)> tell = print_warning;
  /// Ends the job, a moment after the Comms were aborted: the abort does not wake a rank that is stopped, or
  /// hangs outside of a call. Empty: nothing more happens.
  std::function<void()> end{};
  std::string advice{};  ///< what helps then: the end of the message
  /// What the lanes of a rank of this process are in, one line per lane; it is told before the job ends.
  std::function<std::string(int rank)> lanes{};
  /// How long a call waits until it is told for whom; then again after twice as long, and so on.
  std::chrono::milliseconds first_notice{30'000};
};

/// Watches the calls of a rank's Comms. If one waits for long, it tells for which ranks. If one has waited
/// until just before the deadline, it finds out which ranks have not come, writes each rank's last calls,
/// aborts the Comms, and ends the job.
///
/// The watches of the ranks ask each other where they are, shortly before the deadline passes. A rank whose
/// watch answers may take as long as it needs between two runs: it may write a checkpoint, plan, or be in a
/// callback. The time for which a rank's own process was stopped does not count. A rank that does not answer is stopped, or its machine is gone. A rank that answers and runs a
/// Program, but is in no call, hangs.
class CollectiveWatch {
 public:
  /// `transport` is the watch's own; no Comm may use its channel kWatchChannel.
  CollectiveWatch(std::unique_ptr<Transport> transport, WatchOptions options);
  ~CollectiveWatch();
  CollectiveWatch(const CollectiveWatch&) = delete;
  CollectiveWatch& operator=(const CollectiveWatch&) = delete;

  CollectiveRecord& record() { return record_; }
  /// The Comms to abort. A Comm must be removed before it is destroyed.
  void add(Comm& comm);
  void remove(Comm& comm);
  void abort(const std::string& reason);

  /// How this rank's run ends early, after the same batch on all ranks (RunLimit).
  struct Ending {
    std::function<std::int64_t()> hold;
    std::function<void(std::int64_t batch, const std::string& reason)> end_at;
  };
  /// Says how; without an argument: not at all, which is how a watch begins. Then the ranks' runs end at once
  /// when they begin.
  void set_ending(Ending ending = {});
  /// Ends the runs of all ranks soon, after the same batch. Any thread of any rank can call it.
  void request_end(const std::string& reason);
  /// Waits until this rank knows where it ends, which is so when all have answered, or until the watch
  /// closes; returns false if that takes longer.
  bool agreed_within(std::chrono::milliseconds time);
  /// Returns the ranks that have not answered while this rank does not know where it ends: the first one
  /// knows of all, the others of the first one.
  std::vector<int> unanswered();

  /// Writes the last calls of this rank, if there is a directory for them. Returns whether they were written.
  bool write() const;
  /// Returns what this rank does: "has waited for 2.0 s in batch 17, all-reduce of block2 (channel 5, 4096
  /// bytes)".
  std::string doing() const;

 private:
  using Clock = std::chrono::steady_clock;
  /// The last four end all runs after the same batch: a rank asks the first one for it; the first one says
  /// hold, the others answer held, and it says at which batch to end.
  enum class Word : std::uint8_t { question, answer, end, request, hold, held, end_at };
  struct Message {
    Word word;
    CollectiveRecord::CallState state;  // of the sender; `since` is how many seconds ago
    std::int64_t batch;
    char text[1000];  // why the job or the run ends
  };
  struct Peer {
    Message in;
    Transport::Request receive;
    std::optional<CollectiveRecord::CallState> answer;  // to the last question
  };
  struct Sent {
    std::unique_ptr<Message> message;
    Transport::Request request;
  };

  void work();
  void watch();
  void release();
  std::chrono::milliseconds next_look();
  bool sleep(std::chrono::milliseconds time);
  std::optional<std::string> take_request();
  void receive(int peer);
  void send(int peer, Word word, const std::string& text = "", std::int64_t batch = 0);
  void end_together(int peer, const Message& message);
  void begin_end(const std::string& reason);
  void held(int rank, std::int64_t batch);
  std::int64_t hold_own();
  void end_own(std::int64_t batch, const std::string& reason);
  CollectiveRecord::CallState own() const;
  std::optional<std::string> listen();
  void excuse_pause(double before);
  std::optional<std::string> consider();
  bool somebody_may_take_longer() const;
  bool first_to_wait(double seconds) const;
  std::vector<int> absent_ranks() const;
  std::string notice(const CollectiveRecord::CallState& mine, double waited) const;
  std::string verdict() const;
  void dump() const;
  void end(const std::string& why, bool told);

  const std::unique_ptr<Transport> transport_;
  const WatchOptions options_;
  const std::chrono::milliseconds patience_, answer_time_, tick_;
  CollectiveRecord record_;
  std::vector<Peer> peers_;
  std::vector<Sent> sent_;
  std::optional<Clock::time_point> asked_;  // about the oldest call
  double next_notice_ = 0;                  // seconds that a call waits until then
  double excused_until_ = 0;                // seconds of steady_clock, from which the deadline counts again
  double paused_until_ = 0;                 // the same for notices: the call's wait without the pauses
  std::mutex mutex_;                        // guards what follows
  std::condition_variable changed_;
  bool closing_ = false;
  std::set<Comm*> comms_;
  Ending ending_;
  std::optional<std::string> requested_;                           // an end, not passed on yet
  std::optional<std::pair<std::int64_t, std::string>> ending_at_;  // before `ending_` was set
  bool knows_end_ = false;
  bool is_held_ = false;    // this rank's run
  std::set<int> not_held_;  // on the first rank
  // What follows is the watch thread's, on the first rank: an end that is being agreed on.
  std::optional<std::string> agreeing_;
  std::int64_t latest_ = 0;
  std::thread thread_;
};

/// The channel of the watches' messages. No Program uses it.
inline constexpr std::uint64_t kWatchChannel = kSessionChannel - 1;

/// Returns a Comm that does what `comm` does, and records each call with `watch`.
std::unique_ptr<Comm> watched(std::unique_ptr<Comm> comm, std::shared_ptr<CollectiveWatch> watch);

}  // namespace tandem::engine
