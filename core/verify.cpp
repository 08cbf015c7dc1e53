#include <tandem/core/verify.h>

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include <tandem/core/error.h>
#include <tandem/core/waits.h>

namespace tandem {
namespace {

int max_back(const Program& p) {
  int back = 0;
  for (const Step& s : p.steps)
    for (const Wait& w : s.waits) back = std::max(back, w.back);
  return back;
}

int max_slots(const Program& p) {
  int slots = 1;
  for (const Block& b : p.blocks) slots = std::max(slots, b.slots);
  return slots;
}

// ---- progress ------------------------------------------------------------------------------------------

class Lockstep {
 public:
  Lockstep(const Program& p, std::int64_t units) : p_(p), units_(units), lanes_(p.lanes.size()), done_(p.steps.size(), 0) {
    for (StepId s = 0; s < static_cast<StepId>(p.steps.size()); ++s) {
      lanes_[static_cast<std::size_t>(step(s).lane)].steps.push_back(s);
      if (step(s).channel >= 0) ends_[step(s).channel].push_back(s);
    }
  }

  void run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (LaneState& lane : lanes_)
        while (advance(lane)) moved = true;
    }
    std::string stuck;
    for (const LaneState& lane : lanes_)
      if (!finished(lane)) stuck += "\n  " + explain(lane);
    if (!stuck.empty()) throw Error("deadlock: these lanes can never go on:" + stuck);
  }

 private:
  struct LaneState {
    std::vector<StepId> steps;
    std::size_t next = 0;
    std::int64_t unit = 0;
  };

  const Step& step(StepId s) const { return p_.steps[static_cast<std::size_t>(s)]; }
  bool finished(const LaneState& lane) const { return lane.steps.empty() || lane.unit == units_; }
  bool awaited_done(const Wait& w, std::int64_t unit) const {
    return unit < w.back || done_[static_cast<std::size_t>(w.step)] > unit - w.back;
  }
  bool at_head(StepId s, std::int64_t unit) const {
    const LaneState& lane = lanes_[static_cast<std::size_t>(step(s).lane)];
    if (finished(lane) || lane.unit != unit || lane.steps[lane.next] != s) return false;
    return std::all_of(step(s).waits.begin(), step(s).waits.end(), [&](const Wait& w) { return awaited_done(w, unit); });
  }
  void complete(StepId s) {
    LaneState& lane = lanes_[static_cast<std::size_t>(step(s).lane)];
    ++done_[static_cast<std::size_t>(s)];
    if (++lane.next == lane.steps.size()) {
      lane.next = 0;
      ++lane.unit;
    }
  }
  bool advance(LaneState& lane) {
    if (finished(lane)) return false;
    const StepId s = lane.steps[lane.next];
    if (step(s).channel < 0) {
      if (!at_head(s, lane.unit)) return false;
      complete(s);
      return true;
    }
    const auto& ends = ends_.at(step(s).channel);
    const std::int64_t unit = lane.unit;
    if (!std::all_of(ends.begin(), ends.end(), [&](StepId end) { return at_head(end, unit); })) return false;
    for (StepId end : ends) complete(end);
    return true;
  }
  std::string explain(const LaneState& lane) const {
    const StepId s = lane.steps[lane.next];
    std::string text = fmt::format("{}: '{}' of unit {}", name_of(p_.lanes[static_cast<std::size_t>(step(s).lane)], p_.devices),
                                   step(s).name, lane.unit);
    for (const Wait& w : step(s).waits)
      if (!awaited_done(w, lane.unit)) return text + fmt::format(" waits for '{}' of unit {}", step(w.step).name, lane.unit - w.back);
    if (step(s).channel >= 0)
      for (StepId end : ends_.at(step(s).channel))
        if (!at_head(end, lane.unit)) return text + fmt::format(" waits for its other end '{}'", step(end).name);
    return text;
  }

  const Program& p_;
  std::int64_t units_;
  std::vector<LaneState> lanes_;
  std::vector<std::int64_t> done_;
  std::map<std::int64_t, std::vector<StepId>> ends_;
};

// ---- memory --------------------------------------------------------------------------------------------

// An execution: its lane, and its number on that lane counted from 1.
struct Moment {
  LaneId lane = -1;
  std::uint32_t count = 0;
  StepId step = -1;
  std::int64_t unit = 0;
};

// A stretch of bytes that no access splits.
struct Segment {
  MemberId member = -1;     // whose contents it holds, for work and host memory
  std::int64_t index = -1;  // of which batch, or which version
  Moment writer;
  std::vector<Moment> readers;  // the latest on each lane since the write
};

class MemoryCheck {
 public:
  MemoryCheck(const Program& whole, int device) : p_(project(whole, device)), device_(device), lanes_(p_.lanes.size()) {
    for (const Step& s : p_.steps) {
      number_.push_back(++on_lane_.try_emplace(s.lane, 0).first->second);
    }
    split();
  }

  void run(std::int64_t batches) {
    const std::int64_t units = p_.units(batches);
    window_ = static_cast<std::size_t>(max_back(p_)) + 1;
    clocks_.assign(window_ * p_.steps.size() * lanes_, 0);
    lane_clock_.assign(lanes_ * lanes_, 0);
    for (std::int64_t u = 0; u < units; ++u)
      for (StepId s = 0; s < static_cast<StepId>(p_.steps.size()); ++s) execute(s, u, batches);
  }

 private:
  const Step& step(StepId s) const { return p_.steps[static_cast<std::size_t>(s)]; }
  const Member& member(MemberId m) const { return p_.members[static_cast<std::size_t>(m)]; }
  const Block& block(const Member& m) const { return p_.blocks[static_cast<std::size_t>(m.block)]; }
  bool is_state(const Member& m) const { return block(m).arena == Arena::state; }
  std::uint32_t* clock_of(StepId s, std::int64_t u) {
    return &clocks_[(static_cast<std::size_t>(u) % window_ * p_.steps.size() + static_cast<std::size_t>(s)) * lanes_];
  }

  // Cuts each arena at every bound of every member in every slot.
  void split() {
    for (const Member& m : p_.members) {
      if (block(m).device != device_) continue;
      auto& cuts = bounds_[static_cast<std::size_t>(block(m).arena)];
      for (auto offset : block(m).offsets) {
        cuts.push_back(offset + m.offset);
        cuts.push_back(offset + m.offset + m.bytes);
      }
    }
    for (std::size_t a = 0; a < 3; ++a) {
      auto& cuts = bounds_[a];
      std::sort(cuts.begin(), cuts.end());
      cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
      segments_[a].resize(cuts.size());
    }
    for (const Member& m : p_.members)
      if (is_state(m) && block(m).device == device_)
        for_each_segment(m, 0, [&](Segment& s) { s.index = 0; s.member = m.block; });
  }

  template <class F> void for_each_segment(const Member& m, std::int64_t index, F f) {
    const Block& b = block(m);
    const auto& cuts = bounds_[static_cast<std::size_t>(b.arena)];
    const std::int64_t from = b.offsets[static_cast<std::size_t>(b.slot(index))] + m.offset;
    auto at = static_cast<std::size_t>(std::lower_bound(cuts.begin(), cuts.end(), from) - cuts.begin());
    for (; at < cuts.size() && cuts[at] < from + m.bytes; ++at) f(segments_[static_cast<std::size_t>(b.arena)][at]);
  }

  void execute(StepId s, std::int64_t unit, std::int64_t batches) {
    const auto lane = static_cast<std::size_t>(step(s).lane);
    std::uint32_t* now = &lane_clock_[lane * lanes_];  // what the lane knows to be over
    for (const Wait& w : step(s).waits) {
      if (unit < w.back) continue;
      const std::uint32_t* other = clock_of(w.step, unit - w.back);
      for (std::size_t l = 0; l < lanes_; ++l) now[l] = std::max(now[l], other[l]);
    }
    const auto per_unit = static_cast<std::int64_t>(on_lane_.at(step(s).lane));
    const Moment moment{step(s).lane, static_cast<std::uint32_t>(unit * per_unit + number_[static_cast<std::size_t>(s)]), s, unit};
    const std::int64_t batch = unit - step(s).lag;
    if (batch >= 0 && batch < batches) {
      for (MemberId m : step(s).reads)
        if (!is_workspace(s, m)) read(moment, m, batch, now);
      for (MemberId m : step(s).writes) write(moment, m, batch, now);
    }
    now[lane] = moment.count;
    std::copy_n(now, lanes_, clock_of(s, unit));
  }

  bool is_workspace(StepId s, MemberId m) const {
    return std::find(step(s).writes.begin(), step(s).writes.end(), m) != step(s).writes.end();
  }

  void read(const Moment& moment, MemberId m, std::int64_t batch, const std::uint32_t* now) {
    const Member& mem = member(m);
    const std::int64_t index = mem.index(batch);
    const MemberId expected = is_state(mem) ? mem.block : m;
    for_each_segment(mem, index, [&](Segment& s) {
      if (s.member != expected || s.index != index) {
        throw Error(fmt::format("lost value: {} reads '{}' of index {} but finds {}", describe(moment), mem.name, index, contents(s, mem)));
      }
      if (s.writer.count && now[s.writer.lane] < s.writer.count) race(s.writer, moment, mem, "writes", "reads");
      for (Moment& r : s.readers)
        if (r.lane == moment.lane) {
          r = moment;
          return;
        }
      s.readers.push_back(moment);
    });
  }

  void write(const Moment& moment, MemberId m, std::int64_t batch, const std::uint32_t* now) {
    const Member& mem = member(m);
    const std::int64_t index = mem.index(batch);
    for_each_segment(mem, index, [&](Segment& s) {
      if (s.writer.count && now[s.writer.lane] < s.writer.count) race(s.writer, moment, mem, "writes", "writes");
      for (const Moment& r : s.readers) {
        const bool self = r.step == moment.step && r.unit == moment.unit;
        if (self ? !step(r.step).in_place : now[r.lane] < r.count) race(r, moment, mem, "reads", "writes");
      }
      s.readers.clear();
      s.writer = moment;
      s.member = is_state(mem) ? mem.block : m;
      s.index = index;
    });
  }

  std::string describe(const Moment& m) const {
    return fmt::format("'{}' (unit {}, {})", step(m.step).name, m.unit,
                       name_of(p_.lanes[static_cast<std::size_t>(m.lane)], p_.devices));
  }
  std::string contents(const Segment& s, const Member& wanted) const {
    if (s.member < 0) return "nothing written yet";
    if (is_state(wanted)) return fmt::format("version {}", s.index);
    return fmt::format("'{}' of index {}, written by {}", member(s.member).name, s.index, describe(s.writer));
  }
  [[noreturn]] void race(const Moment& first, const Moment& second, const Member& m, const char* did, const char* does) const {
    throw Error(fmt::format("race: {} {} bytes that {} {} ('{}'), and nothing orders them", describe(first), did,
                            describe(second), does, m.name));
  }

  Program p_;
  int device_;
  std::size_t lanes_;
  std::vector<std::uint32_t> number_;             // of a step on its lane, from 1
  std::map<LaneId, std::uint32_t> on_lane_;       // steps a lane runs in a unit
  std::vector<std::int64_t> bounds_[3];           // per arena
  std::vector<Segment> segments_[3];
  std::size_t window_ = 1;                        // units of clocks kept
  std::vector<std::uint32_t> clocks_;             // [unit mod window][step][lane]
  std::vector<std::uint32_t> lane_clock_;         // [lane][lane]
};

}  // namespace

void verify_progress(const Program& p) { Lockstep(p, max_back(p) + 3).run(); }

void verify_memory(const Program& p) {
  // Every phase of the slots is met at least twice between warm-up and drain.
  const std::int64_t batches = p.max_lag + 2 * max_slots(p);
  for (int device = 0; device < p.devices; ++device) MemoryCheck(p, device).run(batches);
}

void verify_extents(const Program& p) {
  for (const Block& b : p.blocks) {
    const DeviceMemory& memory = p.memory.at(static_cast<std::size_t>(b.device));
    const std::int64_t extent = b.arena == Arena::work ? memory.work : b.arena == Arena::state ? memory.state : memory.host;
    if (static_cast<int>(b.offsets.size()) != b.slots) throw Error(fmt::format("block '{}' is not placed", b.name));
    for (auto offset : b.offsets)
      if (offset < 0 || offset + b.bytes > extent)
        throw Error(fmt::format("block '{}' at {} + {} lies outside the {} arena of {} bytes", b.name, offset, b.bytes,
                                name_of(b.arena), extent));
  }
}

void verify(const Program& p) {
  check_schedule(p);
  verify_extents(p);
  verify_progress(p);
  verify_memory(p);
}

}  // namespace tandem
