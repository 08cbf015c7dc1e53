#pragma once
#include <atomic>
#include <exception>
#include <mutex>
#include <string>
#include <vector>

#include <tandem/core/runtime/backend.h>
#include <tandem/core/runtime/cpu_lanes.h>
#include <tandem/core/runtime/executable.h>
#include <tandem/core/runtime/timeline.h>

namespace tandem::engine {

/// Runs a prepared Program on the lanes of its rank. While running it allocates nothing.
class CpuBackend final : public Backend, private CpuLane::Owner {
 public:
  /// `executable` and `lanes` must outlive this. Several backends can use the same lanes if only one at a
  /// time is between its first call and its `flush`. `timeline()` can hold `spans` executions per lane; 0
  /// measures nothing. Their seconds count from `origin`, on the clock of steady_seconds().
  CpuBackend(Executable& executable, CpuLanes& lanes, std::size_t spans = 0,
             double origin = steady_seconds());

  const Program& program() const override { return executable_.program(); }
  void wait(LaneId lane, InstructionId instruction, std::int64_t unit) override;
  void issue(InstructionId instruction, std::int64_t unit, std::int64_t batch) override;
  bool failed() const override { return stopped_.load(std::memory_order_relaxed); }
  /// Throws the first error that an instruction threw, with rank, batch, instruction (which names the op) and
  /// module path in front. The failure wakes the other lanes, and the ranks that can be reached.
  void flush() override;

  /// From here on `limit` decides which batches run; null: all. Call it between runs.
  void set_limit(RunLimit* limit) { limit_ = limit; }
  /// Sets how many executions per lane are measured from now on; 0: none. Call it between runs. What was
  /// measured before is lost.
  void measure(std::size_t spans);
  /// Returns the spans measured since the last call, and the number of executions that found no room.
  Timeline timeline();

  /// Returns what the lanes are executing now, one text per busy lane: "batch 17, instruction block2
  /// receive of module 'block2', on device 1 receive from 0". Any thread can call it.
  std::vector<std::string> doing() const;

  /// Makes all lanes skip what is left, after Ctrl-C or a failure elsewhere. Any thread can call it.
  void stop(std::exception_ptr why);

 private:
  struct alignas(64) Track {  // one per lane; the lane's thread writes the spans
    CpuLane* lane = nullptr;  // null for lanes of other devices
    std::uint64_t per_unit = 0;
    std::uint64_t before = 0;  // instructions the lane had been given when the current run began
    std::vector<Span> spans;
    std::int64_t dropped = 0;                    // executions for which `spans` had no room
    std::atomic<InstructionId> instruction{-1};  // being executed
    std::atomic<std::int64_t> batch{-1};         // its batch; read between two loads of `instruction`
  };

  Track& track_of(InstructionId instruction) { return tracks_[program().lane_id(instruction)]; }
  void begin_run();
  void execute(InstructionId instruction, std::int64_t unit, std::int64_t batch) override;
  int threads() const override { return program().threads; }
  const std::atomic<bool>& stopped() const override { return stopped_; }
  void abort_others(const std::string& reason) noexcept;
  // Both take batch numbers of the whole session, not of the current run.
  std::string describe(InstructionId instruction, std::int64_t batch) const;
  std::exception_ptr explain(InstructionId instruction, std::int64_t batch, std::exception_ptr error) const;

  Executable& executable_;
  IdVector<LaneId, Track> tracks_;                 // per lane
  IdVector<InstructionId, std::uint64_t> number_;  // per instruction: its number on its lane
  RunLimit* limit_ = nullptr;
  bool running_ = false;  // anything enqueued since the last flush
  std::atomic<bool> stopped_{false};
  std::mutex error_mutex_;
  std::exception_ptr error_;
  double origin_;
};

}  // namespace tandem::engine
