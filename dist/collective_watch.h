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
};

/// Watches the calls of a rank's Comms. If one has waited until just before the deadline, it finds out which
/// ranks have not come, writes each rank's last calls, aborts the Comms, and ends the job.
///
/// The watches of the ranks ask each other where they are, shortly before the deadline passes. A rank whose
/// watch answers may take as long as it needs between two runs: it may write a checkpoint, plan, or be in a
/// callback. A rank that does not answer is stopped, or its machine is gone. A rank that answers and runs a
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

  /// Writes the last calls of this rank, if there is a directory for them. Returns whether they were written.
  bool write() const;
  /// Returns what this rank does: "has waited for 2.0 s in batch 17, all-reduce of block2 (channel 5, 4096
  /// bytes)".
  std::string doing() const;

 private:
  using Clock = std::chrono::steady_clock;
  enum class Word : std::uint8_t { question, answer, end };
  struct Message {
    Word word;
    CollectiveRecord::CallState state;  // of the sender; `since` is how many seconds ago
    char text[1000];                    // why the job ends
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
  bool sleep(std::chrono::milliseconds time);
  void receive(int peer);
  void send(int peer, Word word, const std::string& text = "");
  CollectiveRecord::CallState own() const;
  std::optional<std::string> listen();
  std::optional<std::string> consider();
  void ask(Clock::time_point now);
  bool somebody_may_take_longer() const;
  bool first_to_wait() const;
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
  double excused_until_ = 0;                // seconds of steady_clock, from which the deadline counts again
  std::mutex mutex_;                        // guards what follows
  std::condition_variable changed_;
  bool closing_ = false;
  std::set<Comm*> comms_;
  std::thread thread_;
};

/// The channel of the watches' messages. No Program uses it.
inline constexpr std::uint64_t kWatchChannel = kSessionChannel - 1;

/// Returns a Comm that does what `comm` does, and records each call with `watch`.
std::unique_ptr<Comm> watched(std::unique_ptr<Comm> comm, std::shared_ptr<CollectiveWatch> watch);

}  // namespace tandem::engine
