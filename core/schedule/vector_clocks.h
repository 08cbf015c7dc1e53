#pragma once
#include <cstdint>
#include <vector>

#include <tandem/core/schedule/program.h>

namespace tandem::engine {

/// One execution of an instruction: `count` is its number on its lane, from 1; 0 is no execution.
struct Execution {
  LaneId lane = -1;
  std::uint32_t count = 0;
  InstructionId instruction = -1;
  std::int64_t unit = 0;
};

/// Which executions of one device certainly precede which, by lane order and waits alone: vector clocks of a
/// run that goes through the body instruction by instruction, unit by unit. HappensBefore answers for the
/// steady state, this for the very executions.
class VectorClocks {
 public:
  /// `projection`: of one device, and alive as long as the clocks.
  explicit VectorClocks(const Program& projection);

  /// The instruction in that unit, after all that it waits for and all that its lane has run. Called for
  /// every instruction in list order and every unit from 0; `finish` comes before the next.
  Execution start(InstructionId instruction, std::int64_t unit);
  void finish(const Execution& execution);

  /// Had `earlier` ended when `started`, which is not yet finished, started? True of no execution.
  bool precedes(const Execution& earlier, const Execution& started) const {
    return earlier.count == 0 || known(started.lane)[earlier.lane] >= earlier.count;
  }

 private:
  /// Per lane the last execution that `lane` knows to be over.
  std::uint32_t* known(LaneId lane) { return &known_[static_cast<std::size_t>(lane) * lanes_]; }
  const std::uint32_t* known(LaneId lane) const { return &known_[static_cast<std::size_t>(lane) * lanes_]; }
  std::uint32_t* at_end_of(InstructionId instruction, std::int64_t unit);

  const Program& p_;
  std::size_t lanes_;
  std::vector<std::uint32_t> number_;    // of an instruction on its lane, from 1
  std::vector<std::uint32_t> per_unit_;  // instructions a lane runs in a unit
  std::size_t window_;                   // units of clocks kept
  std::vector<std::uint32_t> at_end_;    // [unit mod window][instruction][lane]
  std::vector<std::uint32_t> known_;     // [lane][lane]
};

}  // namespace tandem::engine
