#pragma once
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include <tandem/core/base/team.h>
#include <tandem/core/graph/op.h>
#include <tandem/core/runtime/progress.h>
#include <tandem/core/schedule/program.h>

namespace tandem::engine {

/// A lane on the CPU: a queue, and a thread with its own team that executes the queue's commands in order.
class CpuLane {
 public:
  /// The backend whose instructions a lane executes. It must outlive the commands that it put in.
  class Owner {
   public:
    virtual void execute(InstructionId instruction, std::int64_t unit, std::int64_t batch) = 0;
    virtual int threads() const = 0;  ///< team size of compute lanes; other lanes have no team
    virtual const std::atomic<bool>& stopped() const = 0;

   protected:
    ~Owner() = default;
  };

  explicit CpuLane(LaneKind kind, const ShareOfCores& share = {});
  ~CpuLane();
  CpuLane(const CpuLane&) = delete;
  CpuLane& operator=(const CpuLane&) = delete;

  // Only one thread at a time can call the following functions.

  /// Makes room for `commands` commands, at least those of one unit. With less room, ranks could wait for
  /// each other's ends of a transfer that are not put in yet; verify_progress relies on this. Call it only
  /// while the queue is empty.
  void reserve(std::size_t commands);
  // These block while the queue is full.
  void push_instruction(Owner& owner, InstructionId instruction, std::int64_t unit, std::int64_t batch);
  /// Makes later commands wait until `lane` has executed `count` instructions since its creation.
  void push_wait(Owner& owner, const CpuLane& lane, std::uint64_t count);

  std::uint64_t instructions_pushed() const { return instructions_pushed_; }
  /// Returns when all commands have ended.
  void drain() const { done_.wait_for(instructions_pushed_, closing_); }
  /// Wakes all threads that wait for this lane; each rechecks whether its owner has stopped.
  void wake() const { done_.wake(); }

 private:
  struct Command {
    Owner* owner;
    const CpuLane* awaited;  // null: an instruction
    std::int64_t unit;       // of the instruction, or the awaited count
    std::int64_t batch;
    InstructionId instruction;
  };
  void push(const Command& command);
  void work();

  const LaneKind kind_;
  const ShareOfCores share_;
  std::vector<Command> queue_;                               // a ring; replaced while it is empty
  Progress pushed_, taken_, done_;                           // commands in, commands out, instructions ended
  std::uint64_t next_pushed_ = 0, instructions_pushed_ = 0;  // used by the pushing thread
  std::atomic<bool> closing_{false};
  std::thread thread_;
};

/// The lanes of a rank. Programs that run on the same lanes take turns.
class CpuLanes {
 public:
  /// Compute lanes and their teams stay on a share of the caller's cores, by default on all of them. The
  /// other lanes, which mostly wait, run wherever there is room.
  explicit CpuLanes(const ShareOfCores& share = {}) : share_(share) {}
  /// Returns a lane, which the first request creates. `index` is as in Lane.
  CpuLane& get(LaneKind kind, int index);

 private:
  ShareOfCores share_;
  std::map<std::pair<LaneKind, int>, std::unique_ptr<CpuLane>> lanes_;
};

}  // namespace tandem::engine
