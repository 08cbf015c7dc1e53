#pragma once
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include <tandem/core/schedule/program.h>

namespace tandem::engine {

/// The order of executions that lane order and waits guarantee on each device in the steady state. For every
/// instruction it holds the first execution on each lane that starts after the instruction has ended.
class HappensBefore {
 public:
  /// `unseen`: leaves out that a lane is done with an instruction when it begins the next one, for those
  /// where it is true.
  explicit HappensBefore(const Program& program, const std::function<bool(const Instruction&)>& unseen = {});

  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

  /// Returns the list position of the first execution on `lane` that starts after `instruction` of unit 0 has
  /// ended. Later units continue the count (position + units · instructions). kNever if there is none.
  std::int64_t first_after(InstructionId instruction, LaneId lane) const {
    return first_[static_cast<std::size_t>(instruction) * lanes_ + static_cast<std::size_t>(lane)];
  }
  /// Returns whether `from` of unit u has ended when `to` of unit u + units starts.
  bool precedes(InstructionId from, InstructionId to, std::int64_t units) const {
    const std::int64_t at = units * instructions_ + to;
    return first_after(from, lane_of_[to]) <= at;
  }

 private:
  std::int64_t instructions_;
  std::size_t lanes_;
  IdVector<InstructionId, LaneId> lane_of_;
  std::vector<std::int64_t> first_;
};

}  // namespace tandem::engine
