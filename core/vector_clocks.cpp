#include <tandem/core/vector_clocks.h>

#include <algorithm>

namespace tandem {

VectorClocks::VectorClocks(const Program& projection)
    : p_(projection),
      lanes_(p_.lanes.size()),
      per_unit_(lanes_, 0),
      window_(static_cast<std::size_t>(max_back(p_)) + 1),
      at_end_(window_ * p_.steps.size() * lanes_, 0),
      known_(lanes_ * lanes_, 0) {
  for (const Step& s : p_.steps) number_.push_back(++per_unit_[static_cast<std::size_t>(s.lane)]);
}

Execution VectorClocks::start(StepId step, std::int64_t unit) {
  const LaneId lane = p_.lane_id(step);
  std::uint32_t* const now = known(lane);
  for (const Wait& w : p_.step(step).waits) {
    if (unit < w.back) continue;
    const std::uint32_t* const awaited = at_end_of(w.step, unit - w.back);
    for (std::size_t l = 0; l < lanes_; ++l) now[l] = std::max(now[l], awaited[l]);
  }
  const std::int64_t before = unit * per_unit_[static_cast<std::size_t>(lane)];
  return {lane, static_cast<std::uint32_t>(before + number_[static_cast<std::size_t>(step)]), step, unit};
}

void VectorClocks::finish(const Execution& execution) {
  std::uint32_t* const now = known(execution.lane);
  now[execution.lane] = execution.count;
  std::copy_n(now, lanes_, at_end_of(execution.step, execution.unit));
}

std::uint32_t* VectorClocks::at_end_of(StepId step, std::int64_t unit) {
  const std::size_t row =
      static_cast<std::size_t>(unit) % window_ * p_.steps.size() + static_cast<std::size_t>(step);
  return &at_end_[row * lanes_];
}

}  // namespace tandem
