#include <tandem/core/runtime/sim_backend.h>

#include <algorithm>
#include <limits>
#include <map>

#include <fmt/format.h>

#include <tandem/core/base/error.h>

namespace tandem::engine {
namespace {
constexpr double kForever = std::numeric_limits<double>::infinity();
// Seconds of work left, relative to the clock, that are only rounding errors of the clock.
constexpr double kRounding = 1e-15;
}  // namespace

SimBackend::SimBackend(const Program& program)
    : program_(program),
      timeline_(empty_timeline(program)),
      clocks_(program.lanes.size()),
      ended_(program.instructions.size(), 0),
      other_ends_(program.instructions.size()),
      beside_(program.lanes.size()) {
  std::map<std::int64_t, std::vector<InstructionId>> ends;
  for (const InstructionId s : program.instructions.ids())
    if (const auto channel = program.instruction(s).channel; channel >= 0) ends[channel].push_back(s);
  for (const auto& [channel, instructions] : ends)
    for (InstructionId s : instructions)
      for (InstructionId other : instructions)
        if (other != s) other_ends_[s].push_back(other);
  for (const LaneId a : program.lanes.ids())
    for (const LaneId b : program.lanes.ids())
      if (a != b && program.lane(a).device == program.lane(b).device) beside_[a].push_back(b);
}

void SimBackend::wait(LaneId lane, InstructionId instruction, std::int64_t unit) {
  clocks_[lane].queue.push_back({-1 - instruction, unit, -1});
}

void SimBackend::issue(InstructionId instruction, std::int64_t unit, std::int64_t batch) {
  clock_of(instruction).queue.push_back({instruction, unit, batch});
}

// Skips waits that are over. Returns whether the lane is idle and an instruction is at its head.
bool SimBackend::ready(Clock& clock) {
  if (clock.running) return false;
  for (; clock.next < clock.queue.size(); ++clock.next) {
    const Command& c = clock.head();
    if (c.instruction >= 0) return true;
    if (ended_[-1 - c.instruction] <= c.unit) return false;
  }
  return false;
}

bool SimBackend::start_ready() {
  bool started = false;
  for (Clock& clock : clocks_) {
    if (!ready(clock)) continue;
    const Command& c = clock.head();
    const auto start = [&](Clock& end, double seconds) {
      end.running = true;
      end.begin = now_;
      end.left = seconds;
    };
    if (c.batch < 0) {  // inactive: does not meet its other ends
      start(clock, 0);
      started = true;
      continue;
    }
    const auto& others = other_ends_[c.instruction];
    bool all = true;
    double seconds = program_.instruction(c.instruction).cost.seconds;
    for (InstructionId other : others) {
      Clock& end = clock_of(other);
      all = all && ready(end) && end.head().instruction == other && end.head().unit == c.unit;
      seconds = std::max(seconds, program_.instruction(other).cost.seconds);
    }
    if (!all) continue;
    start(clock, seconds);
    for (InstructionId other : others) start(clock_of(other), seconds);
    started = true;
  }
  return started;
}

double SimBackend::rate(LaneId lane) const {
  const auto cost = [&](LaneId l) { return program_.instruction(clocks_[l].head().instruction).cost; };
  const auto is_compute = [&](LaneId l) { return program_.lane(l).kind == LaneKind::compute; };
  int computing = is_compute(lane) ? 1 : 0;
  double slowed = 1;
  for (LaneId other : beside_[lane]) {
    const Clock& c = clocks_[other];
    if (!c.running || c.left <= kRounding * (1 + now_)) continue;
    if (is_compute(other))
      ++computing;
    else
      slowed *= cost(other).others_rate;
  }
  if (!is_compute(lane)) return computing ? cost(lane).own_rate : 1;
  return slowed * (computing > 1 ? 1 / (computing * program_.corun) : 1);
}

void SimBackend::finish(LaneId lane) {
  Clock& clock = clocks_[lane];
  const Command& c = clock.head();
  ++ended_[c.instruction];
  if (c.batch >= 0)
    timeline_.spans.push_back({program_.lane(lane).device, lane, c.instruction, c.unit, c.batch, clock.begin,
                               now_, program_.instruction(c.instruction).tag.threads, clock.begin});
  clock.running = false;
  ++clock.next;
}

void SimBackend::flush() {
  IdVector<LaneId, double> rates(clocks_.size());
  for (;;) {
    while (start_ready()) {
      // Instructions without work end at once, and can let others start at the same moment.
      for (const LaneId l : clocks_.ids())
        if (clocks_[l].running && clocks_[l].left <= 0) finish(l);
    }
    double until_end = kForever;  // seconds until the next instruction ends
    for (const LaneId l : clocks_.ids()) {
      if (!clocks_[l].running) continue;
      rates[l] = rate(l);
      // The ends of one transfer move together, at the slowest end's rate.
      for (InstructionId other : other_ends_[clocks_[l].head().instruction])
        rates[l] = std::min(rates[l], rate(program_.lane_id(other)));
      until_end = std::min(until_end, clocks_[l].left / rates[l]);
    }
    if (until_end == kForever) break;
    now_ += until_end;
    for (const LaneId l : clocks_.ids()) {
      Clock& c = clocks_[l];
      if (!c.running) continue;
      const double took = c.left / rates[l];
      c.left = took <= until_end ? 0 : c.left - until_end * rates[l];
    }
    for (const LaneId l : clocks_.ids())
      if (clocks_[l].running && clocks_[l].left <= kRounding * (1 + now_)) finish(l);
  }
  for (Clock& c : clocks_) {
    if (c.next < c.queue.size()) throw Error(fmt::format("deadlock in simulation at {} s", now_));
    c.queue.clear();
    c.next = 0;
  }
  std::ranges::fill(ended_, 0);  // the next run counts its units from 0
}

}  // namespace tandem::engine
