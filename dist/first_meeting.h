#pragma once
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <tandem/dist/launch.h>

namespace tandem::engine {

/// Watches over a meeting of a job's ranks: when MPI starts, makes a Comm, or ends, and before they train.
/// MPI waits there without limit and in silence if the launcher started something else as one of the ranks,
/// or if a rank never gets so far.
///
/// Each rank leaves a mark when it arrives: a file with its process number, in the directory that the
/// launcher makes for the job on each machine (Open MPI, and Slurm with PMIx). Other launchers make no such
/// directory, and the message does not name the missing ranks.
class FirstMeeting {
 public:
  /// Leaves the mark, and watches until this is destroyed. After `patience`, each time when that time has
  /// doubled, and when `deadline` has passed, calls `tell`, unless it is empty, on one rank of each machine.
  /// After the deadline all ranks end their process with status 1: a call of MPI cannot be ended in another
  /// way.
  FirstMeeting(const LaunchEnvironment& launch, std::chrono::milliseconds patience,
               std::chrono::milliseconds deadline, std::function<void(const std::string&)> tell);
  /// The ranks have met, or this one has given up: removes the mark.
  ~FirstMeeting();
  FirstMeeting(const FirstMeeting&) = delete;
  FirstMeeting& operator=(const FirstMeeting&) = delete;

 private:
  std::string mark(int rank) const;
  std::vector<int> arrived() const;
  std::vector<int> stopped(const std::vector<int>& ranks) const;
  std::string missing() const;
  void watch();
  bool wait_until(std::chrono::milliseconds after_begin);
  bool reports() const;
  void report(const std::string& end);

  const LaunchEnvironment launch_;
  const std::chrono::milliseconds patience_, deadline_, end_;
  const std::function<void(const std::string&)> tell_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::string marks_;  // the directory; empty if there is none
  std::mutex mutex_;
  std::condition_variable changed_;
  bool met_ = false;
  std::thread watch_;
};

}  // namespace tandem::engine
