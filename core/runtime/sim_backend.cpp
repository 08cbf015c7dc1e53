#include <tandem/core/runtime/sim_backend.h>

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tandem/core/base/error.h>

namespace tandem::engine {
namespace {
// Ends that are so close, relative to the clock, are one moment: the difference is a rounding error.
constexpr double kRounding = 1e-15;
}  // namespace

SimBackend::SimBackend(const Program& program)
    : program_(program),
      timeline_(empty_timeline(program)),
      clocks_(program.lanes.size()),
      ended_(program.instructions.size(), 0),
      other_ends_(program.instructions.size()),
      beside_(program.lanes.size()),
      waiting_(program.instructions.size()) {
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
bool SimBackend::ready(LaneId lane) {
  Clock& clock = clocks_[lane];
  if (clock.running) return false;
  for (; clock.next < clock.queue.size(); ++clock.next) {
    const Command& c = clock.head();
    if (c.instruction >= 0) return true;
    const InstructionId awaited = -1 - c.instruction;
    if (ended_[awaited] > c.unit) continue;
    if (!clock.waiting) waiting_[awaited].push_back(lane);
    clock.waiting = true;
    return false;
  }
  return false;
}

// Returns whether an instruction is at the head of its idle lane, and all that it waits for has ended.
bool SimBackend::stands_at(InstructionId instruction, std::int64_t unit) {
  if (!ready(program_.lane_id(instruction))) return false;
  const Command& head = clock_of(instruction).head();
  return head.instruction == instruction && head.unit == unit;
}

// Starts the lane's next instruction, with its other ends, if all are ready.
void SimBackend::try_start(LaneId lane) {
  if (!ready(lane)) return;
  const Command c = clocks_[lane].head();
  const auto start = [&](LaneId end, double seconds) {
    Clock& clock = clocks_[end];
    clock.running = true;
    clock.begin = clock.since = now_;
    clock.left = seconds;
    clock.rate = 0;
    touched_.push_back(end);
    if (seconds <= 0) changed_.push_back(end);
  };
  if (c.batch < 0) {  // inactive: does not meet its other ends
    start(lane, 0);
    return;
  }
  double seconds = program_.instruction(c.instruction).cost.seconds;
  for (const InstructionId other : other_ends_[c.instruction]) {
    if (!stands_at(other, c.unit)) return;
    seconds = std::max(seconds, program_.instruction(other).cost.seconds);
  }
  start(lane, seconds);
  for (const InstructionId other : other_ends_[c.instruction]) start(program_.lane_id(other), seconds);
}

// Starts what can start. Instructions without work end at once, and can let others start at the same moment.
void SimBackend::start_ready() {
  while (!changed_.empty()) {
    std::vector<LaneId> lanes = std::exchange(changed_, {});
    std::ranges::sort(lanes);
    lanes.erase(std::unique(lanes.begin(), lanes.end()), lanes.end());
    for (const LaneId lane : lanes) {
      if (clocks_[lane].running && clocks_[lane].left <= 0)
        finish(lane);
      else
        try_start(lane);
    }
  }
}

// Whether two lanes of a device are the two directions of a link that carries one of them at a time.
bool SimBackend::share_link(LaneId a, LaneId b) const {
  const auto transfers = [&](LaneId l) {
    return program_.lane(l).kind == LaneKind::send || program_.lane(l).kind == LaneKind::receive;
  };
  return !program_.duplex && transfers(a) && transfers(b) && program_.lane(a).index == program_.lane(b).index;
}

double SimBackend::rate(LaneId lane) const {
  const auto cost = [&](LaneId l) { return program_.instruction(clocks_[l].head().instruction).cost; };
  const auto is_compute = [&](LaneId l) { return program_.lane(l).kind == LaneKind::compute; };
  int computing = is_compute(lane) ? 1 : 0, sharing = 1;
  double slowed = 1;
  for (LaneId other : beside_[lane]) {
    if (!clocks_[other].running) continue;
    if (is_compute(other))
      ++computing;
    else
      slowed *= cost(other).others_rate;
    if (share_link(lane, other)) ++sharing;
  }
  if (!is_compute(lane)) return (computing ? cost(lane).own_rate : 1) / sharing;
  return slowed * (computing > 1 ? 1 / (computing * program_.corun_of(program_.lane(lane).device)) : 1);
}

// The ends of one transfer move together, at the slowest end's rate.
double SimBackend::joint_rate(LaneId lane) const {
  double slowest = rate(lane);
  for (const InstructionId other : other_ends_[clocks_[lane].head().instruction])
    slowest = std::min(slowest, rate(program_.lane_id(other)));
  return slowest;
}

void SimBackend::finish(LaneId lane) {
  Clock& clock = clocks_[lane];
  const Command& c = clock.head();
  ++ended_[c.instruction];
  if (c.batch >= 0)
    timeline_.spans.push_back({program_.lane(lane).device, lane, c.instruction, c.unit, c.batch, clock.begin,
                               now_, program_.instruction(c.instruction).tag.threads, clock.begin});
  clock.running = false;
  ++clock.predictions;
  touched_.push_back(lane);
  changed_.push_back(lane);
  for (const LaneId waiting : std::exchange(waiting_[c.instruction], {})) {
    clocks_[waiting].waiting = false;
    changed_.push_back(waiting);
  }
  ++clock.next;
}

void SimBackend::predict_end(LaneId lane) {
  Clock& clock = clocks_[lane];
  const double rate = joint_rate(lane);
  if (rate == clock.rate) return;
  clock.left = std::max(0.0, clock.left - (now_ - clock.since) * clock.rate);
  clock.since = now_;
  clock.rate = rate;
  ends_.push({now_ + clock.left / rate, lane, ++clock.predictions});
}

// Where lanes started or ended, those beside them work at another rate, and so do the other ends of those.
void SimBackend::predict_ends() {
  const auto predict = [&](LaneId lane) {
    if (!clocks_[lane].running) return;
    predict_end(lane);
    for (const InstructionId other : other_ends_[clocks_[lane].head().instruction])
      if (clocks_[lane].head().batch >= 0) predict_end(program_.lane_id(other));
  };
  for (const LaneId lane : std::exchange(touched_, {})) {
    predict(lane);
    for (const LaneId other : beside_[lane]) predict(other);
  }
}

// Goes on to the next moment at which something ends, and ends it.
void SimBackend::end_next() {
  const auto is_old = [&](const End& end) { return end.prediction != clocks_[end.lane].predictions; };
  while (!ends_.empty() && is_old(ends_.top())) ends_.pop();
  if (ends_.empty()) return;
  now_ = std::max(now_, ends_.top().time);
  std::vector<LaneId> lanes;
  for (; !ends_.empty() && ends_.top().time <= now_ + kRounding * (1 + now_); ends_.pop())
    if (!is_old(ends_.top())) lanes.push_back(ends_.top().lane);
  std::ranges::sort(lanes);
  for (const LaneId lane : lanes) finish(lane);
}

// Says what a lane stands at that cannot go on.
std::string SimBackend::standstill(LaneId lane) {
  const Clock& clock = clocks_[lane];
  const auto name = [&](InstructionId s, std::int64_t unit) {
    return fmt::format("'{}' of unit {}", program_.instruction(s).name, unit);
  };
  const Command& head = clock.head();
  const auto next = std::find_if(clock.queue.begin() + static_cast<std::ptrdiff_t>(clock.next),
                                 clock.queue.end(), [](const Command& c) { return c.instruction >= 0; });
  std::string text = name_of(program_.lane(lane), program_.devices);
  if (next != clock.queue.end()) text += fmt::format(": {}", name(next->instruction, next->unit));
  if (head.instruction < 0) return text + " waits for " + name(-1 - head.instruction, head.unit);
  for (const InstructionId other : other_ends_[head.instruction])
    if (!stands_at(other, head.unit)) return text + " waits for its other end " + name(other, head.unit);
  return text;
}

void SimBackend::flush() {
  for (const LaneId lane : clocks_.ids()) changed_.push_back(lane);
  while (!changed_.empty()) {
    start_ready();
    predict_ends();
    end_next();
  }
  std::vector<std::string> standing;
  for (const LaneId lane : clocks_.ids())
    if (clocks_[lane].next < clocks_[lane].queue.size()) standing.push_back(standstill(lane));
  if (!standing.empty())
    throw Error(fmt::format("deadlock in simulation at {} s: these lanes cannot go on: {}", now_,
                            fmt::join(standing, "; ")));
  for (Clock& c : clocks_) {
    c.queue.clear();
    c.next = 0;
  }
  std::ranges::fill(ended_, 0);  // the next run counts its units from 0
}

double simulated_batch_seconds(const Program& program) {
  const auto seconds = [&](std::int64_t batches) {
    SimBackend sim(program);
    run(sim, batches);
    return sim.now();
  };
  return seconds(4) - seconds(3);
}

}  // namespace tandem::engine
