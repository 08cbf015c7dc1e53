#include <tandem/core/verify.h>

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include <tandem/core/accesses.h>
#include <tandem/core/error.h>
#include <tandem/core/memory.h>
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

class ProgressProof {
 public:
  ProgressProof(const Program& p, std::int64_t units)
      : p_(p), units_(units), lanes_(p.lanes.size()), done_(p.steps.size(), 0) {
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
    return std::all_of(step(s).waits.begin(), step(s).waits.end(),
                       [&](const Wait& w) { return awaited_done(w, unit); });
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
    std::string text = fmt::format("{}: '{}' of unit {}",
                                   name_of(p_.lanes[static_cast<std::size_t>(step(s).lane)], p_.devices),
                                   step(s).name, lane.unit);
    for (const Wait& w : step(s).waits)
      if (!awaited_done(w, lane.unit))
        return text + fmt::format(" waits for '{}' of unit {}", step(w.step).name, lane.unit - w.back);
    if (step(s).channel >= 0)
      for (StepId end : ends_.at(step(s).channel))
        if (!at_head(end, lane.unit))
          return text + fmt::format(" waits for its other end '{}'", step(end).name);
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
  std::int32_t holder = -1;  // whose contents it holds: a member or, in the state arena, a block
  std::int64_t index = -1;   // of which batch, or which version
  Moment writer;
  std::vector<Moment> readers;  // the latest on each lane since the write
};

class MemoryCheck {
 public:
  MemoryCheck(const Program& whole, int device)
      : p_(project(whole, device)),
        device_(device),
        lanes_(p_.lanes.size()),
        used_(p_.members.size()),
        assigned_(p_.blocks.size()) {
    for (const Step& s : p_.steps) {
      number_.push_back(++on_lane_.try_emplace(s.lane, 0).first->second);
      for (MemberId m : s.reads) used_[at(m)] = true;
      for (MemberId m : s.writes) used_[at(m)] = assigned_[at(member(m).block)] = true;
    }
    split();
    check_slot_counts();
  }

  void run(std::int64_t batches) {
    const std::int64_t units = p_.units(batches);
    window_ = at(max_back(p_)) + 1;
    clocks_.assign(window_ * p_.steps.size() * lanes_, 0);
    lane_clock_.assign(lanes_ * lanes_, 0);
    for (std::int64_t u = 0; u < units; ++u)
      for (StepId s = 0; s < static_cast<StepId>(p_.steps.size()); ++s) execute(s, u, batches);
    check_drained(batches);
  }

 private:
  static std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }
  const Step& step(StepId s) const { return p_.steps[at(s)]; }
  const Member& member(MemberId m) const { return p_.members[at(m)]; }
  const Block& block(const Member& m) const { return p_.blocks[at(m.block)]; }
  bool is_state(const Member& m) const { return block(m).arena == Arena::state; }
  std::uint32_t* clock_of(StepId s, std::int64_t u) {
    return &clocks_[(at(u) % window_ * p_.steps.size() + at(s)) * lanes_];
  }

  // Every member that a step uses and every state, whole: what may cover bytes.
  std::vector<Member> covers() const {
    std::vector<Member> result;
    for (std::size_t m = 0; m < used_.size(); ++m)
      if (used_[m]) result.push_back(p_.members[m]);
    for (BlockId b = 0; b < static_cast<BlockId>(p_.blocks.size()); ++b)
      if (p_.blocks[at(b)].arena == Arena::state && p_.blocks[at(b)].device == device_)
        result.push_back({p_.blocks[at(b)].name, b, 0, p_.blocks[at(b)].bytes, 0});
    return result;
  }

  // Cuts each arena at every bound of what covers it, in every slot.
  void split() {
    for (const Member& m : covers())
      for (auto offset : block(m).offsets) {
        auto& cuts = bounds_[at(int(block(m).arena))];
        cuts.push_back(offset + m.offset);
        cuts.push_back(offset + m.offset + m.bytes);
      }
    for (std::size_t a = 0; a < 3; ++a) {
      auto& cuts = bounds_[a];
      std::sort(cuts.begin(), cuts.end());
      cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
      segments_[a].resize(cuts.size());
    }
    for (const Member& m : covers())
      if (is_state(m)) for_each_segment(m, 0, [&](Segment& s) { s.index = 0, s.holder = m.block; });
  }

  // Blocks share bytes only at equal slot count: the phases of unequal ones are too many to be met in the
  // units unrolled.
  void check_slot_counts() {
    std::vector<BlockId> owner[3];
    for (std::size_t a = 0; a < 3; ++a) owner[a].assign(segments_[a].size(), -1);
    for (const Member& m : covers())
      for (int slot = 0; slot < block(m).slots; ++slot)
        for_each_segment(m, slot, [&](Segment& s) {
          const std::size_t a = at(int(block(m).arena));
          BlockId& first = owner[a][at(&s - segments_[a].data())];
          if (first < 0) first = m.block;
          const Block& other = p_.blocks[at(first)];
          if (other.slots != block(m).slots)
            throw Error(fmt::format(
                "race: '{}' ({} slots, used by '{}') and '{}' ({} slots, used by '{}') share bytes; only blocks "
                "with equally many slots may",
                other.name, other.slots, user_of(first), block(m).name, block(m).slots, user_of(m.block)));
        });
  }
  std::string user_of(BlockId b) const {
    for (const Step& s : p_.steps)
      for (const auto* members : {&s.writes, &s.reads})
        for (MemberId m : *members)
          if (member(m).block == b) return s.name;
    return "no step";
  }

  template <class F> void for_each_segment(const Member& m, std::int64_t index, F f) {
    const Block& b = block(m);
    const auto& cuts = bounds_[at(int(b.arena))];
    auto& segments = segments_[at(int(b.arena))];
    const std::int64_t from = address(m, index);
    auto i = at(std::lower_bound(cuts.begin(), cuts.end(), from) - cuts.begin());
    for (; i < cuts.size() && cuts[i] < from + m.bytes; ++i) f(segments[i]);
  }
  std::int64_t address(const Member& m, std::int64_t index) const {
    return block(m).offsets[at(block(m).slot(index))] + m.offset;
  }

  void execute(StepId s, std::int64_t unit, std::int64_t batches) {
    const auto lane = at(step(s).lane);
    std::uint32_t* now = &lane_clock_[lane * lanes_];  // what the lane knows to be over
    for (const Wait& w : step(s).waits) {
      if (unit < w.back) continue;
      const std::uint32_t* other = clock_of(w.step, unit - w.back);
      for (std::size_t l = 0; l < lanes_; ++l) now[l] = std::max(now[l], other[l]);
    }
    const auto per_unit = static_cast<std::int64_t>(on_lane_.at(step(s).lane));
    const Moment moment{step(s).lane, static_cast<std::uint32_t>(unit * per_unit + number_[at(s)]), s, unit};
    const std::int64_t batch = unit - step(s).lag;
    if (batch >= 0 && batch < batches) {
      check_in_place(moment, batch);
      for (MemberId m : step(s).reads) read(moment, m, batch, now);
      for (MemberId m : step(s).writes) write(moment, m, batch, now);
    }
    now[lane] = moment.count;
    std::copy_n(now, lanes_, clock_of(s, unit));
  }

  // A step reads and writes the same bytes only where it may, and then exactly the same.
  void check_in_place(const Moment& moment, std::int64_t batch) const {
    const Step& s = step(moment.step);
    for (MemberId w : s.writes)
      for (MemberId r : s.reads) {
        const Member &out = member(w), &in = member(r);
        if (r == w || block(in).arena != block(out).arena) continue;
        const std::int64_t to = address(out, out.index(batch)), from = address(in, in.index(batch));
        if (to >= from + in.bytes || from >= to + out.bytes) continue;
        if (!s.in_place || in.block != out.block || to != from || in.bytes != out.bytes)
          throw Error(
              fmt::format("race: {} writes '{}' over '{}', which it reads; it may not work in place there",
                          describe(moment), out.name, in.name));
      }
  }

  void read(const Moment& moment, MemberId m, std::int64_t batch, const std::uint32_t* now) {
    const Member& mem = member(m);
    const std::int32_t expected = is_state(mem) ? mem.block : m;
    const std::int64_t index = is_state(mem) && !assigned_[at(mem.block)] ? 0 : mem.index(batch);
    for_each_segment(mem, mem.index(batch), [&](Segment& s) {
      if (s.holder != expected || s.index != index)
        throw Error(fmt::format("lost value: {} reads '{}' of index {} but finds {}", describe(moment),
                                mem.name, index, contents(s, is_state(mem))));
      if (s.writer.count && now[s.writer.lane] < s.writer.count)
        race(s.writer, moment, mem, "writes", "reads");
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
    for_each_segment(mem, mem.index(batch), [&](Segment& s) {
      if (s.writer.count && now[s.writer.lane] < s.writer.count)
        race(s.writer, moment, mem, "writes", "writes");
      for (const Moment& r : s.readers) {
        const bool self = r.step == moment.step && r.unit == moment.unit;  // in place, as checked before
        if (!self && now[r.lane] < r.count) race(r, moment, mem, "reads", "writes");
      }
      s.readers.clear();
      s.writer = moment;
      s.holder = is_state(mem) ? mem.block : m;
      s.index = mem.index(batch);
    });
  }

  // What a run leaves behind: the current version of every state, also of those that this Program does not
  // use.
  void check_drained(std::int64_t batches) {
    for (const Member& m : covers()) {
      if (!is_state(m)) continue;
      const std::int64_t version = assigned_[at(m.block)] ? batches : 0;
      for_each_segment(m, version, [&](Segment& s) {
        if (s.holder != m.block || s.index != version)
          throw Error(
              fmt::format("lost value: after the run, state '{}' should have version {} but {} is there",
                          block(m).name, version, contents(s, true)));
      });
    }
  }

  std::string describe(const Moment& m) const {
    return fmt::format("'{}' (unit {}, {})", step(m.step).name, m.unit,
                       name_of(p_.lanes[at(m.lane)], p_.devices));
  }
  std::string contents(const Segment& s, bool in_state) const {
    if (s.holder < 0) return "nothing written yet";
    const std::string what = in_state
                                 ? fmt::format("version {} of '{}'", s.index, p_.blocks[at(s.holder)].name)
                                 : fmt::format("'{}' of index {}", member(s.holder).name, s.index);
    return s.writer.count ? fmt::format("{}, written by {}", what, describe(s.writer)) : what;
  }
  [[noreturn]] void race(const Moment& first, const Moment& second, const Member& m, const char* did,
                         const char* does) const {
    throw Error(fmt::format("race: {} {} bytes that {} {} ('{}'), and nothing orders them", describe(first),
                            did, describe(second), does, m.name));
  }

  Program p_;
  int device_;
  std::size_t lanes_;
  std::vector<bool> used_;                   // per member: by a step of this device
  std::vector<bool> assigned_;               // per block: written by such a step
  std::vector<std::uint32_t> number_;        // of a step on its lane, from 1
  std::map<LaneId, std::uint32_t> on_lane_;  // steps a lane runs in a unit
  std::vector<std::int64_t> bounds_[3];      // per arena
  std::vector<Segment> segments_[3];
  std::size_t window_ = 1;                 // units of clocks kept
  std::vector<std::uint32_t> clocks_;      // [unit mod window][step][lane]
  std::vector<std::uint32_t> lane_clock_;  // [lane][lane]
};

}  // namespace

void verify_progress(const Program& p) { ProgressProof(p, max_back(p) + 3).run(); }

void verify_memory(const Program& p) {
  // Every phase of the slots is met at least twice between warm-up and drain.
  const std::int64_t batches = p.max_lag + 2 * max_slots(p);
  for (int device = 0; device < p.devices; ++device) MemoryCheck(p, device).run(batches);
}

void verify_extents(const Program& p) {
  const auto accesses = accesses_by_block(p);
  for (std::size_t id = 0; id < p.blocks.size(); ++id) {
    const Block& b = p.blocks[id];
    if (accesses[id].empty() && b.arena != Arena::state) continue;  // never addressed
    const DeviceMemory& memory = p.memory.at(static_cast<std::size_t>(b.device));
    const std::int64_t extent = b.arena == Arena::work    ? memory.work
                                : b.arena == Arena::state ? memory.state
                                                          : memory.host;
    if (static_cast<int>(b.offsets.size()) != b.slots)
      throw Error(fmt::format("block '{}' is not placed", b.name));
    for (auto offset : b.offsets)
      if (offset < 0 || offset % kAlignment != 0 || offset + b.bytes > extent)
        throw Error(
            fmt::format("block '{}' at {} + {} is not aligned, or lies outside the {} arena of {} bytes",
                        b.name, offset, b.bytes, name_of(b.arena), extent));
  }
}

void verify(const Program& p) {
  check_schedule(p);
  for (const Step& s : p.steps)
    if (s.lag > p.max_lag)
      throw Error(
          fmt::format("the Program drains for {} units, but '{}' has lag {}", p.max_lag, s.name, s.lag));
  verify_extents(p);
  verify_progress(p);
  verify_memory(p);
}

}  // namespace tandem
