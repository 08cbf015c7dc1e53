#pragma once
#include <cstdint>
#include <limits>
#include <vector>

#include <tandem/core/schedule/program.h>

namespace tandem::engine {

/// What certainly precedes what in the steady state, by lane order and waits, on each device. For every
/// instruction it holds the first execution on each lane that starts after the instruction has ended.
class HappensBefore {
 public:
  explicit HappensBefore(const Program& program);

  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

  /// List position of the first execution on `lane` that starts after `instruction` of unit 0 has ended,
  /// counted on through the following units (position + units · instructions). kNever if there is none.
  std::int64_t first_after(InstructionId instruction, LaneId lane) const {
    return first_[static_cast<std::size_t>(instruction) * lanes_ + static_cast<std::size_t>(lane)];
  }
  /// Has `from` of unit u ended when `to` of unit u + units starts?
  bool precedes(InstructionId from, InstructionId to, std::int64_t units) const {
    const std::int64_t at = units * instructions_ + to;
    return first_after(from, lane_of_[static_cast<std::size_t>(to)]) <= at;
  }

 private:
  std::int64_t instructions_;
  std::size_t lanes_;
  std::vector<LaneId> lane_of_;
  std::vector<std::int64_t> first_;
};

}  // namespace tandem::engine
