#pragma once
#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <tandem/core/runtime/backend.h>
#include <tandem/core/runtime/cpu_lanes.h>
#include <tandem/core/runtime/executable.h>
#include <tandem/core/runtime/timeline.h>

namespace tandem::engine {

/// Runs a prepared Program on the lanes of its rank. Once running it allocates nothing.
class CpuBackend final : public Backend, private CpuLane::Owner {
 public:
  /// `executable` and `lanes` must outlive this. Several backends may use the same lanes, and take turns: one
  /// at a time between its first call and its `flush`. `spans`: how many executions per lane `timeline()` can
  /// hold; 0 measures nothing. Their seconds count from `origin`, on the clock of steady_seconds().
  CpuBackend(Executable& executable, CpuLanes& lanes, std::size_t spans = 0,
             double origin = steady_seconds());

  const Program& program() const override { return executable_.program(); }
  void wait(LaneId lane, InstructionId instruction, std::int64_t unit) override;
  void issue(InstructionId instruction, std::int64_t unit, std::int64_t batch) override;
  bool failed() const override { return stopped_.load(std::memory_order_relaxed); }
  /// Throws the first error an instruction threw, with rank, instruction, batch, op and module path in front;
  /// the others' lanes, and ranks that can be reached, are woken.
  void flush() override;

  /// Spans measured since the last call, and how many found no room.
  Timeline timeline();

  /// What the lanes are executing just now, from any thread: "batch 17: 'block2 receive' of module 'block2'",
  /// one text a lane, none of idle lanes.
  std::vector<std::string> doing() const;

  /// Makes all lanes skip what is left, from any thread: Ctrl-C, or a failure elsewhere.
  void stop(std::exception_ptr why);

 private:
  struct alignas(64) Track {  // of one lane; its thread writes the spans
    CpuLane* lane = nullptr;  // null for lanes of other devices
    std::uint64_t per_unit = 0;
    std::uint64_t before = 0;  // instructions the lane had been given when the current run began
    std::vector<Span> spans;
    std::int64_t dropped = 0;                    // executions that found no room there
    std::atomic<InstructionId> instruction{-1};  // being executed
    std::atomic<std::int64_t> batch{-1};  // its batch's number, read between two looks at `instruction`
  };

  Track& track_of(InstructionId instruction) {
    return tracks_[static_cast<std::size_t>(program().lane_id(instruction))];
  }
  void begin_run();
  void execute(InstructionId instruction, std::int64_t unit, std::int64_t batch) override;
  int threads() const override { return program().threads; }
  const std::atomic<bool>& stopped() const override { return stopped_; }
  void abort_others(const std::string& reason) noexcept;
  // Batches of these two are numbered as in the whole run of a session.
  std::string describe(InstructionId instruction, std::int64_t batch) const;
  std::exception_ptr explain(InstructionId instruction, std::int64_t batch, std::exception_ptr error) const;

  Executable& executable_;
  std::vector<Track> tracks_;          // per lane
  std::vector<std::uint64_t> number_;  // of an instruction on its lane, from 1
  bool running_ = false;               // since the last flush
  std::atomic<bool> stopped_{false};
  std::mutex error_mutex_;
  std::exception_ptr error_;
  double origin_;
};

}  // namespace tandem::engine
