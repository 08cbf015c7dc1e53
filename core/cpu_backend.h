#pragma once
#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <tandem/core/backend.h>
#include <tandem/core/executable.h>
#include <tandem/core/progress.h>
#include <tandem/core/timeline.h>

namespace tandem {

/// Lanes as worker threads, each with its own queue and its own team. Once running it allocates nothing.
class CpuBackend final : public Backend {
 public:
  /// `spans`: how many executions per lane `timeline()` can hold; 0 measures nothing.
  explicit CpuBackend(Executable& executable, std::size_t spans = 0);
  ~CpuBackend() override;

  const Program& program() const override { return executable_.program(); }
  void wait(LaneId lane, StepId step, std::int64_t unit) override;
  void issue(StepId step, std::int64_t unit, std::int64_t batch) override;
  /// Throws the first error a step threw, with rank, step, batch, op and module path in front; the others'
  /// lanes, and ranks that can be reached, are woken.
  void flush() override;

  /// Measured spans since the last call; seconds count from the construction of the backend.
  Timeline timeline();

  /// Makes all lanes skip what is left, from any thread: Ctrl-C, or a failure elsewhere.
  void stop(std::exception_ptr why);

 private:
  struct Command {
    StepId step;  // −1: wait
    LaneId awaited_lane;
    std::int64_t unit;  // of the step; or the count awaited
    std::int64_t batch;
  };
  struct Worker {
    std::vector<Command> ring;
    Progress issued, taken, done;                     // commands in, commands out, steps ended
    std::uint64_t next_issued = 0, steps_issued = 0;  // of the thread that issues
    alignas(64) std::vector<Span> spans;              // of the lane's thread
    std::thread thread;
  };

  void push(Worker& worker, const Command& command);
  void work(LaneId lane);
  void execute(LaneId lane, Worker& worker, const Command& command);
  std::exception_ptr explain(const Command& command, std::exception_ptr error) const;

  Executable& executable_;
  std::vector<std::unique_ptr<Worker>> workers_;  // per lane; null for lanes of other devices
  std::vector<std::uint64_t> number_;             // of a step on its lane, from 1
  std::vector<std::uint64_t> per_unit_;           // steps a lane runs in a unit
  std::vector<std::uint64_t> base_;               // steps a lane had run when the current run began
  std::atomic<bool> stopped_{false};
  std::atomic<bool> closing_{false};
  std::mutex error_mutex_;
  std::exception_ptr error_;
  double origin_;
};

}  // namespace tandem
