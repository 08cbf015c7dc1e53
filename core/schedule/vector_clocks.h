#pragma once
#include <cstdint>
#include <vector>

#include <tandem/core/schedule/program.h>

namespace tandem::engine {

/// One execution of an instruction. `count` is its number on its lane, from 1; 0 means no execution.
struct Execution {
  LaneId lane = -1;
  std::uint32_t count = 0;
  InstructionId instruction = -1;
  std::int64_t unit = 0;
};

/// Tells which executions of one device certainly precede which, by lane order and waits alone. These are the
/// vector clocks of a run that goes through the body instruction by instruction, unit by unit. HappensBefore
/// answers for the steady state, VectorClocks for single executions.
class VectorClocks {
 public:
  /// `projection` is the part of a Program on one device (`project`). It must outlive the clocks.
  explicit VectorClocks(const Program& projection);

  /// Starts the instruction in that unit, after everything that it waits for and that its lane has run. Call
  /// it in every unit from 0 for every instruction in list order, and call `finish` before the next start.
  Execution start(InstructionId instruction, std::int64_t unit);
  void finish(const Execution& execution);

  /// Returns whether `earlier` had ended when `started` began; true if `earlier` is no execution. `started`
  /// must not have finished.
  bool precedes(const Execution& earlier, const Execution& started) const {
    return earlier.count == 0 || known(started.lane)[earlier.lane] >= earlier.count;
  }

 private:
  /// For each lane, the count of the last execution that `lane` knows to have ended.
  std::uint32_t* known(LaneId lane) { return &known_[static_cast<std::size_t>(lane) * lanes_]; }
  const std::uint32_t* known(LaneId lane) const { return &known_[static_cast<std::size_t>(lane) * lanes_]; }
  std::uint32_t* at_end_of(InstructionId instruction, std::int64_t unit);

  const Program& p_;
  std::size_t lanes_;
  IdVector<InstructionId, std::uint32_t> number_;  // of an instruction on its lane, from 1
  IdVector<LaneId, std::uint32_t> per_unit_;       // instructions a lane runs in a unit
  std::size_t window_;                             // units of clocks kept
  std::vector<std::uint32_t> at_end_;              // [unit mod window][instruction][lane]
  std::vector<std::uint32_t> known_;               // [lane][lane]
};

}  // namespace tandem::engine
