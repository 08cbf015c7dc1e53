#pragma once
#include <functional>
#include <queue>
#include <string>
#include <tuple>
#include <vector>

#include <tandem/core/runtime/backend.h>
#include <tandem/core/runtime/timeline.h>

namespace tandem::engine {

/// Simulates the lanes of the global Program as clocks, with a rate model: an instruction has `cost.seconds`
/// of work, and works at a rate that depends on what runs beside it on its device.
///
/// - k computations side by side each run at 1/(kρ), ρ = Program::corun of the device (1: no gain over one
///   after the other; 1/k: they do not disturb each other);
/// - a communication or copy beside a computation runs at its `own_rate` and slows the computation to
///   its `others_rate`. With own_rate = (q+a)/(p+a) and others_rate = α1 − α2·r this is LIBRA's model,
///   Eqs. (5)–(15);
/// - a transfer beside one in the other direction works at half its rate, unless Program::duplex.
///
/// The ends of a transfer or collective start when all are ready, and end together, when the most expensive
/// one does. Inactive ends do not meet, just as in a real run. If lanes can never go on, `flush` throws Error
/// with the instruction that each stands at, and what it waits for.
class SimBackend final : public Backend {
 public:
  /// `program` must outlive this.
  explicit SimBackend(const Program& program);
  const Program& program() const override { return program_; }
  void wait(LaneId lane, InstructionId instruction, std::int64_t unit) override;
  void issue(InstructionId instruction, std::int64_t unit, std::int64_t batch) override;
  void flush() override;

  /// Returns the predicted spans of everything flushed so far, without those of inactive instructions.
  const Timeline& timeline() const { return timeline_; }
  /// Returns the predicted seconds from the start to the end of the last instruction.
  double now() const { return now_; }

 private:
  struct Command {
    InstructionId instruction;  // −1 − instruction: a wait for it
    std::int64_t unit;
    std::int64_t batch;
  };
  struct Clock {
    std::vector<Command> queue;
    std::size_t next = 0;
    bool running = false, waiting = false;  // waiting: on the list of the instruction that it waits for
    double begin = 0;
    double left = 0;               // seconds of work alone that were left at `since`
    double since = 0, rate = 0;    // since when it works at this rate
    std::int64_t predictions = 0;  // of its end; only the last one counts
    const Command& head() const { return queue[next]; }
  };
  struct End {  // of what a lane runs
    double time;
    LaneId lane;
    std::int64_t prediction;
    bool operator>(const End& other) const { return std::tie(time, lane) > std::tie(other.time, other.lane); }
  };

  Clock& clock_of(InstructionId instruction) { return clocks_[program_.lane_id(instruction)]; }
  bool ready(LaneId lane);
  bool stands_at(InstructionId instruction, std::int64_t unit);
  void try_start(LaneId lane);
  void start_ready();
  void finish(LaneId lane);
  void predict_ends();
  void predict_end(LaneId lane);
  void end_next();
  bool share_link(LaneId a, LaneId b) const;
  double rate(LaneId lane) const;
  double joint_rate(LaneId lane) const;
  std::string standstill(LaneId lane);

  const Program& program_;
  Timeline timeline_;
  double now_ = 0;
  IdVector<LaneId, Clock> clocks_;               // per lane
  IdVector<InstructionId, std::int64_t> ended_;  // per instruction: units ended in this run
  IdVector<InstructionId, std::vector<InstructionId>>
      other_ends_;                                        // per instruction: the other ends of its channel
  IdVector<LaneId, std::vector<LaneId>> beside_;          // per lane: the other lanes of its device
  IdVector<InstructionId, std::vector<LaneId>> waiting_;  // per instruction: lanes that wait for it
  std::vector<LaneId> changed_;                           // lanes whose next instruction may start now
  std::vector<LaneId> touched_;  // lanes that started or ended: rates beside them change
  std::priority_queue<End, std::vector<End>, std::greater<>> ends_;
};

/// Returns the simulated seconds from batch to batch in the steady state of a run.
double simulated_batch_seconds(const Program& program);

}  // namespace tandem::engine
