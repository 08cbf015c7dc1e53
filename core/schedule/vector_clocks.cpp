#include <tandem/core/schedule/vector_clocks.h>

#include <algorithm>

namespace tandem::engine {

VectorClocks::VectorClocks(const Program& projection)
    : p_(projection),
      lanes_(p_.lanes.size()),
      per_unit_(lanes_, 0),
      window_(static_cast<std::size_t>(max_back(p_)) + 1),
      at_end_(window_ * p_.instructions.size() * lanes_, 0),
      known_(lanes_ * lanes_, 0) {
  for (const Instruction& s : p_.instructions) number_.push_back(++per_unit_[s.lane]);
}

Execution VectorClocks::start(InstructionId instruction, std::int64_t unit) {
  const LaneId lane = p_.lane_id(instruction);
  std::uint32_t* const now = known(lane);
  for (const Wait& w : p_.instruction(instruction).waits) {
    if (unit < w.back) continue;
    const std::uint32_t* const awaited = at_end_of(w.instruction, unit - w.back);
    for (std::size_t l = 0; l < lanes_; ++l) now[l] = std::max(now[l], awaited[l]);
  }
  const std::int64_t before = unit * per_unit_[lane];
  return {lane, static_cast<std::uint32_t>(before + number_[instruction]), instruction, unit};
}

void VectorClocks::finish(const Execution& execution) {
  std::uint32_t* const now = known(execution.lane);
  now[execution.lane] = execution.count;
  std::copy_n(now, lanes_, at_end_of(execution.instruction, execution.unit));
}

std::uint32_t* VectorClocks::at_end_of(InstructionId instruction, std::int64_t unit) {
  const std::size_t row = static_cast<std::size_t>(unit) % window_ * p_.instructions.size() +
                          static_cast<std::size_t>(instruction);
  return &at_end_[row * lanes_];
}

}  // namespace tandem::engine
