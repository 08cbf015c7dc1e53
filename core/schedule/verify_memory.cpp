// Proves that there is no race and no lost value: which instruction touches which bytes, and what they hold.
#include <tandem/core/schedule/verify.h>

#include <algorithm>

#include <fmt/format.h>

#include <tandem/core/base/error.h>
#include <tandem/core/schedule/vector_clocks.h>

namespace tandem::engine {
namespace {

int max_slots(const Program& p) {
  int slots = 1;
  for (const MemoryBlock& b : p.blocks) slots = std::max(slots, b.slots);
  return slots;
}

// A stretch of bytes that no access splits.
struct Segment {
  std::int32_t holder = -1;  // the member, or in the state arena the block, that it holds
  std::int64_t index = -1;   // the batch or the version of that
  Execution writer;
  std::vector<Execution> readers;  // the latest on each lane since the write
  BlockId first = -1;              // the first block that covers it
  bool is_used = false;            // by an instruction
};

class MemoryCheck {
 public:
  MemoryCheck(const Program& whole, int device)
      : p_(project(whole, device)),
        device_(device),
        clocks_(p_),
        used_(p_.members.size()),
        assigned_(p_.blocks.size()) {
    for (const Instruction& s : p_.instructions) {
      for (MemberId m : s.reads) used_[m] = true;
      for (MemberId m : s.writes) used_[m] = assigned_[member(m).block] = true;
    }
    find_covers();
    split();
    check_slot_counts();
  }

  void run(std::int64_t batches) {
    const std::int64_t units = p_.units(batches);
    for (std::int64_t u = 0; u < units; ++u)
      for (const InstructionId s : p_.instructions.ids()) execute(s, u, batches);
    check_drained(batches);
  }

 private:
  const Instruction& instruction(InstructionId s) const { return p_.instruction(s); }
  const Member& member(MemberId m) const { return p_.member(m); }
  const MemoryBlock& block(const Member& m) const { return p_.block(m.block); }
  bool is_state(const Member& m) const { return block(m).arena == Arena::state; }

  // Finds everything that can cover bytes: the members that instructions use, and all whole states.
  void find_covers() {
    for (const MemberId m : used_.ids())
      if (used_[m]) covers_.push_back(member(m));
    for (const BlockId b : p_.blocks.ids())
      if (p_.block(b).arena == Arena::state && p_.block(b).device == device_)
        covers_.push_back({p_.block(b).name, b, 0, p_.block(b).bytes, 0});
  }

  // Cuts each arena at the bounds of all covers, in every slot.
  void split() {
    for (const Member& m : covers_)
      for (auto offset : block(m).offsets) {
        auto& cuts = bounds_[int(block(m).arena)];
        cuts.push_back(offset + m.offset);
        cuts.push_back(offset + m.offset + m.bytes);
      }
    for (std::size_t a = 0; a < 3; ++a) {
      auto& cuts = bounds_[a];
      std::ranges::sort(cuts);
      cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
      segments_[a].resize(cuts.size());
    }
    for (const Member& m : covers_)
      if (is_state(m)) for_each_segment(m, 0, [&](Segment& s) { s.index = 0, s.holder = m.block; });
    for (const MemberId m : used_.ids())
      for (int slot = 0; used_[m] && slot < block(member(m)).slots; ++slot)
        for_each_segment(member(m), slot, [](Segment& s) { s.is_used = true; });
  }

  // Blocks can share bytes only if they have equally many slots: with unequal counts more combinations of
  // slots occur than in the units unrolled.
  void check_slot_counts() {
    for (const Member& m : covers_)
      for (int slot = 0; slot < block(m).slots; ++slot)
        for_each_segment(m, slot, [&](Segment& s) {
          if (s.first < 0) s.first = m.block;
          const MemoryBlock& other = p_.block(s.first);
          if (other.slots != block(m).slots)
            throw Error(fmt::format(
                "race: '{}' ({} slots, used by '{}') and '{}' ({} slots, used by '{}') share bytes; only blocks "
                "with equally many slots may",
                other.name, other.slots, user_of(s.first), block(m).name, block(m).slots, user_of(m.block)));
        });
  }
  std::string user_of(BlockId b) const {
    for (const Instruction& s : p_.instructions)
      for (const auto* members : {&s.writes, &s.reads})
        for (MemberId m : *members)
          if (member(m).block == b) return s.name;
    return "no instruction";
  }

  template <class F> void for_each_segment(const Member& m, std::int64_t index, F f) {
    const auto& cuts = bounds_[int(block(m).arena)];
    auto& segments = segments_[int(block(m).arena)];
    const std::int64_t from = address(m, index);
    auto i = std::ranges::lower_bound(cuts, from) - cuts.begin();
    for (; i < std::ssize(cuts) && cuts[i] < from + m.bytes; ++i) f(segments[i]);
  }
  std::int64_t address(const Member& m, std::int64_t index) const {
    return block(m).offsets[block(m).slot(index)] + m.offset;
  }

  void execute(InstructionId s, std::int64_t unit, std::int64_t batches) {
    const Execution execution = clocks_.start(s, unit);
    const std::int64_t batch = unit - instruction(s).lag;
    if (batch >= 0 && batch < batches) {
      check_in_place(execution, batch);
      for (MemberId m : instruction(s).reads) read(execution, m, batch);
      for (MemberId m : instruction(s).writes) write(execution, m, batch);
    }
    clocks_.finish(execution);
  }

  // An instruction can write over an input only in place, and then over exactly the same bytes.
  void check_in_place(const Execution& execution, std::int64_t batch) const {
    const Instruction& s = instruction(execution.instruction);
    for (MemberId w : s.writes)
      for (MemberId r : s.reads) {
        const Member &out = member(w), &in = member(r);
        if (r == w || block(in).arena != block(out).arena) continue;
        const std::int64_t to = address(out, out.index(batch)), from = address(in, in.index(batch));
        if (to >= from + in.bytes || from >= to + out.bytes) continue;
        if (!s.in_place || in.block != out.block || to != from || in.bytes != out.bytes)
          throw Error(
              fmt::format("race: {} writes '{}' over '{}', which it reads; it may not work in place there",
                          describe(execution), out.name, in.name));
      }
  }

  void read(const Execution& execution, MemberId m, std::int64_t batch) {
    const Member& mem = member(m);
    const std::int32_t expected = is_state(mem) ? mem.block : m;
    const std::int64_t index = is_state(mem) && !assigned_[mem.block] ? 0 : mem.index(batch);
    for_each_segment(mem, mem.index(batch), [&](Segment& s) {
      if (s.holder != expected || s.index != index)
        throw Error(fmt::format("lost value: {} reads '{}' of index {} but finds {}", describe(execution),
                                mem.name, index, contents(s, is_state(mem))));
      if (!clocks_.precedes(s.writer, execution)) race(s.writer, execution, mem, "writes", "reads");
      const auto before = std::ranges::find(s.readers, execution.lane, &Execution::lane);
      if (before == s.readers.end())
        s.readers.push_back(execution);
      else
        *before = execution;
    });
  }

  void write(const Execution& execution, MemberId m, std::int64_t batch) {
    const Member& mem = member(m);
    for_each_segment(mem, mem.index(batch), [&](Segment& s) {
      if (!clocks_.precedes(s.writer, execution)) race(s.writer, execution, mem, "writes", "writes");
      for (const Execution& r : s.readers) {
        const bool self = r.instruction == execution.instruction &&
                          r.unit == execution.unit;  // in place, as checked before
        if (!self && !clocks_.precedes(r, execution)) race(r, execution, mem, "reads", "writes");
      }
      s.readers.clear();
      s.writer = execution;
      s.holder = is_state(mem) ? mem.block : m;
      s.index = mem.index(batch);
    });
  }

  // Checks that a run leaves the current version of every state, also of states that this Program does not
  // use, and of parts of states: an optimizer's are used for some models only if others have another one.
  void check_drained(std::int64_t batches) {
    for (const Member& m : covers_) {
      if (!is_state(m)) continue;
      const std::int64_t current = assigned_[m.block] ? batches : 0;
      for_each_segment(m, current, [&](Segment& s) {
        const std::int64_t version = s.is_used ? current : 0;
        if (s.holder != m.block || s.index != version)
          throw Error(
              fmt::format("lost value: after the run, state '{}' should have version {} but {} is there",
                          block(m).name, version, contents(s, true)));
      });
    }
  }

  std::string describe(const Execution& e) const {
    return fmt::format("'{}' (unit {}, {})", instruction(e.instruction).name, e.unit,
                       name_of(p_.lanes[e.lane], p_.devices));
  }
  std::string contents(const Segment& s, bool in_state) const {
    if (s.holder < 0) return "nothing written yet";
    const std::string what = in_state ? fmt::format("version {} of '{}'", s.index, p_.blocks[s.holder].name)
                                      : fmt::format("'{}' of index {}", member(s.holder).name, s.index);
    return s.writer.count ? fmt::format("{}, written by {}", what, describe(s.writer)) : what;
  }
  [[noreturn]] void race(const Execution& first, const Execution& second, const Member& m, const char* did,
                         const char* does) const {
    throw Error(fmt::format("race: {} {} bytes that {} {} ('{}'), and nothing orders them", describe(first),
                            did, describe(second), does, m.name));
  }

  Program p_;
  int device_;
  VectorClocks clocks_;
  std::vector<Member> covers_;
  IdVector<MemberId, bool> used_;        // per member: by an instruction of this device
  IdVector<BlockId, bool> assigned_;     // per block: written by such an instruction
  std::vector<std::int64_t> bounds_[3];  // per arena
  std::vector<Segment> segments_[3];
};

}  // namespace

void verify_memory(const Program& p) {
  // Between warm-up and drain, every slot is used at least twice.
  const std::int64_t batches = p.max_lag + 2 * max_slots(p);
  for (int device = 0; device < p.devices; ++device) MemoryCheck(p, device).run(batches);
}

}  // namespace tandem::engine
