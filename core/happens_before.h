#pragma once
#include <cstdint>
#include <limits>
#include <vector>

#include <tandem/core/program.h>

namespace tandem {

/// What certainly precedes what in the steady state, by lane order and waits, on each device. For every
/// step it holds the first execution on each lane that starts after the step has ended.
class HappensBefore {
 public:
  explicit HappensBefore(const Program& program);

  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

  /// List position of the first execution on `lane` that starts after `step` of unit 0 has ended, counted
  /// on through the following units (position + units · steps). kNever if there is none.
  std::int64_t first_after(StepId step, LaneId lane) const {
    return first_[static_cast<std::size_t>(step) * lanes_ + static_cast<std::size_t>(lane)];
  }
  /// Has `from` of unit u ended when `to` of unit u + units starts?
  bool precedes(StepId from, StepId to, std::int64_t units) const {
    const std::int64_t at = units * steps_ + to;
    return first_after(from, lane_of_[static_cast<std::size_t>(to)]) <= at;
  }

 private:
  std::int64_t steps_;
  std::size_t lanes_;
  std::vector<LaneId> lane_of_;
  std::vector<std::int64_t> first_;
};

}  // namespace tandem
