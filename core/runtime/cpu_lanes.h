#pragma once
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include <tandem/core/graph/op.h>
#include <tandem/core/runtime/progress.h>
#include <tandem/core/schedule/program.h>

namespace tandem::engine {

/// A lane on the CPU: a queue, and a thread with a team of its own that does what is put in, in that order.
class CpuLane {
 public:
  /// Whose instructions a lane executes. It must outlive what it has put in.
  class Owner {
   public:
    virtual void execute(InstructionId instruction, std::int64_t unit, std::int64_t batch) = 0;
    virtual int threads() const = 0;  ///< team size of compute lanes; other lanes have no team
    virtual const std::atomic<bool>& stopped() const = 0;

   protected:
    ~Owner() = default;
  };

  explicit CpuLane(LaneKind kind);
  ~CpuLane();
  CpuLane(const CpuLane&) = delete;
  CpuLane& operator=(const CpuLane&) = delete;

  // For one thread at a time.

  /// Makes room for `commands` at once: all of a unit's, without which ranks may wait for each other's ends
  /// of a transfer that are not put in yet, whatever was proved of lanes as queues without end. To be called
  /// while nothing is put in.
  void reserve(std::size_t commands);
  // These block while the queue is full.
  void push_instruction(Owner& owner, InstructionId instruction, std::int64_t unit, std::int64_t batch);
  /// What is put in from here on waits until `lane` has executed `count` instructions since it exists.
  void push_wait(Owner& owner, const CpuLane& lane, std::uint64_t count);

  std::uint64_t instructions_pushed() const { return instructions_pushed_; }
  /// Returns when all that was put in is over.
  void drain() const { done_.wait_for(instructions_pushed_, closing_); }
  /// Makes whoever waits for this lane look again whether its owner has stopped.
  void wake() const { done_.wake(); }

 private:
  struct Command {
    Owner* owner;
    const CpuLane* awaited;  // null: an instruction
    std::int64_t unit;       // of the instruction; or the count awaited
    std::int64_t batch;
    InstructionId instruction;
  };
  void push(const Command& command);
  void work();

  const LaneKind kind_;
  std::vector<Command> queue_;                               // a ring; replaced while it is empty
  Progress pushed_, taken_, done_;                           // commands in, commands out, instructions ended
  std::uint64_t next_pushed_ = 0, instructions_pushed_ = 0;  // of the thread that puts in
  std::atomic<bool> closing_{false};
  std::thread thread_;
};

/// The lanes of a rank. Programs that run on the same lanes take turns.
class CpuLanes {
 public:
  /// Created when first asked for. `index` as in Lane.
  CpuLane& get(LaneKind kind, int index);

 private:
  std::map<std::pair<LaneKind, int>, std::unique_ptr<CpuLane>> lanes_;
};

}  // namespace tandem::engine
