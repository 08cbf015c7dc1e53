#include <tandem/core/sim_backend.h>

#include <algorithm>
#include <limits>
#include <map>

#include <fmt/format.h>

#include <tandem/core/error.h>

namespace tandem {
namespace {
constexpr double kForever = std::numeric_limits<double>::infinity();
// Seconds of work left that are rounding errors of the clock, which grow with it.
constexpr double kRounding = 1e-15;
}  // namespace

SimBackend::SimBackend(const Program& program)
    : program_(program),
      timeline_(empty_timeline(program)),
      clocks_(program.lanes.size()),
      ended_(program.steps.size(), 0),
      other_ends_(program.steps.size()),
      beside_(program.lanes.size()) {
  std::map<std::int64_t, std::vector<StepId>> ends;
  for (StepId s = 0; s < static_cast<StepId>(program.steps.size()); ++s)
    if (const auto channel = program.step(s).channel; channel >= 0) ends[channel].push_back(s);
  for (const auto& [channel, steps] : ends)
    for (StepId s : steps)
      for (StepId other : steps)
        if (other != s) other_ends_[static_cast<std::size_t>(s)].push_back(other);
  for (std::size_t a = 0; a < program.lanes.size(); ++a)
    for (std::size_t b = 0; b < program.lanes.size(); ++b)
      if (a != b && program.lanes[a].device == program.lanes[b].device)
        beside_[a].push_back(static_cast<LaneId>(b));
}

void SimBackend::wait(LaneId lane, StepId step, std::int64_t unit) {
  clocks_[static_cast<std::size_t>(lane)].queue.push_back({-1 - step, unit, -1});
}

void SimBackend::issue(StepId step, std::int64_t unit, std::int64_t batch) {
  const LaneId lane = program_.step(step).lane;
  clocks_[static_cast<std::size_t>(lane)].queue.push_back({step, unit, batch});
}

// Passes the waits that are over; true when a step is at the head and the lane is idle.
bool SimBackend::ready(Clock& clock) {
  if (clock.running) return false;
  for (; clock.next < clock.queue.size(); ++clock.next) {
    const Command& c = clock.queue[clock.next];
    if (c.step >= 0) return true;
    if (ended_[static_cast<std::size_t>(-1 - c.step)] <= c.unit) return false;
  }
  return false;
}

bool SimBackend::start_ready() {
  bool started = false;
  for (Clock& clock : clocks_) {
    if (!ready(clock)) continue;
    const Command& c = clock.queue[clock.next];
    const auto& others = other_ends_[static_cast<std::size_t>(c.step)];
    const auto lane_of = [&](StepId s) -> Clock& {
      return clocks_[static_cast<std::size_t>(program_.step(s).lane)];
    };
    const auto start = [&](Clock& end, double seconds) {
      end.running = true;
      end.begin = now_;
      end.left = seconds;
    };
    if (c.batch < 0) {  // nothing to meet for
      start(clock, 0);
      started = true;
      continue;
    }
    bool all = true;
    double seconds = program_.step(c.step).cost.seconds;
    for (StepId other : others) {
      Clock& end = lane_of(other);
      all = all && ready(end) && end.queue[end.next].step == other && end.queue[end.next].unit == c.unit;
      seconds = std::max(seconds, program_.step(other).cost.seconds);
    }
    if (!all) continue;
    start(clock, seconds);
    for (StepId other : others) start(lane_of(other), seconds);
    started = true;
  }
  return started;
}

double SimBackend::rate(LaneId lane) const {
  const auto step_on = [&](LaneId l) -> const Step& {
    const Clock& c = clocks_[static_cast<std::size_t>(l)];
    return program_.step(c.queue[c.next].step);
  };
  const auto is_compute = [&](LaneId l) { return program_.lane(l).kind == LaneKind::compute; };
  int computing = is_compute(lane) ? 1 : 0;
  double slowed = 1;
  for (LaneId other : beside_[static_cast<std::size_t>(lane)]) {
    const Clock& c = clocks_[static_cast<std::size_t>(other)];
    if (!c.running || c.left <= kRounding * (1 + now_)) continue;
    if (is_compute(other))
      ++computing;
    else
      slowed *= step_on(other).cost.others_rate;
  }
  if (!is_compute(lane)) return computing ? step_on(lane).cost.own_rate : 1;
  return slowed * (computing > 1 ? 1 / (computing * program_.corun) : 1);
}

void SimBackend::finish(LaneId lane) {
  Clock& clock = clocks_[static_cast<std::size_t>(lane)];
  const Command& c = clock.queue[clock.next];
  ++ended_[static_cast<std::size_t>(c.step)];
  if (c.batch >= 0)
    timeline_.spans.push_back({program_.lane(lane).device, lane, c.step, c.unit, c.batch, clock.begin, now_});
  clock.running = false;
  ++clock.next;
}

void SimBackend::flush() {
  std::vector<double> rates(clocks_.size());
  for (;;) {
    while (start_ready()) {
      // Steps without work end at once, and may let others start at the same moment.
      for (std::size_t l = 0; l < clocks_.size(); ++l)
        if (clocks_[l].running && clocks_[l].left <= 0) finish(static_cast<LaneId>(l));
    }
    double step = kForever;
    for (std::size_t l = 0; l < clocks_.size(); ++l) {
      if (!clocks_[l].running) continue;
      rates[l] = rate(static_cast<LaneId>(l));
      // The ends of one transfer move together, at the slowest end's rate.
      for (StepId other : other_ends_[static_cast<std::size_t>(clocks_[l].queue[clocks_[l].next].step)])
        rates[l] = std::min(rates[l], rate(program_.step(other).lane));
      step = std::min(step, clocks_[l].left / rates[l]);
    }
    if (step == kForever) break;
    now_ += step;
    for (std::size_t l = 0; l < clocks_.size(); ++l) {
      Clock& c = clocks_[l];
      if (!c.running) continue;
      const double took = c.left / rates[l];
      c.left = took <= step ? 0 : c.left - step * rates[l];
    }
    for (std::size_t l = 0; l < clocks_.size(); ++l)
      if (clocks_[l].running && clocks_[l].left <= kRounding * (1 + now_)) finish(static_cast<LaneId>(l));
  }
  for (Clock& c : clocks_) {
    if (c.next < c.queue.size()) throw Error(fmt::format("deadlock in simulation at {} s", now_));
    c.queue.clear();
    c.next = 0;
  }
  std::fill(ended_.begin(), ended_.end(), 0);  // the next run counts its units from 0
}

}  // namespace tandem
