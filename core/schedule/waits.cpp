#include <tandem/core/schedule/waits.h>

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include <tandem/core/base/contains.h>
#include <tandem/core/base/error.h>
#include <tandem/core/schedule/accesses.h>
#include <tandem/core/schedule/happens_before.h>

namespace tandem::engine {
namespace {

// Returns, for each member, the instruction that writes it; for a read of state, the one that assigns it. The
// parts that several arrays of models have of a state are assigned one by one.
IdVector<MemberId, Access> writers(const Program& p) {
  IdVector<MemberId, Access> result(p.members.size());
  IdVector<BlockId, std::vector<Access>> assigns(p.blocks.size());
  const auto assign_of = [&](const Member& member) {
    const auto found = std::ranges::find_if(
        assigns[member.block], [&](const Access& a) { return overlap(p.member(a.member), member); });
    return found == assigns[member.block].end() ? Access() : *found;
  };
  const auto set_once = [&](Access& writer, const Access& now, std::string_view what, std::string_view name,
                            std::string_view written) {
    if (writer.instruction >= 0)
      throw Error(fmt::format("{} '{}' is {} twice, by '{}' and by '{}'", what, name, written,
                              p.instruction(writer.instruction).name, p.instruction(now.instruction).name));
    writer = now;
  };
  for (const InstructionId s : p.instructions.ids())
    for (MemberId m : p.instruction(s).writes) {
      const Member& member = p.member(m);
      const Access write{s, m, true, p.instruction(s).lag - member.shift};
      set_once(result[m], write, "value", member.name, "made");
      if (const MemoryBlock& block = p.block_of(m); block.arena == Arena::state) {
        Access before = assign_of(member);
        set_once(before, write, "state", block.name, "assigned");
        assigns[member.block].push_back(write);
      }
    }
  for (const MemberId m : p.members.ids())
    if (result[m].instruction < 0 && p.block_of(m).arena == Arena::state) result[m] = assign_of(p.member(m));
  return result;
}

void check_devices(const Program& p) {
  if (p.devices < 1 || p.devices > kMaxDevices || p.replicas < 1 || p.microbatches < 1)
    throw Error(fmt::format("a Program of {}, {} and {}; devices must be 1 to {}, the others at least 1",
                            counted(p.devices, "device"), counted(p.replicas, "replica"),
                            counted(p.microbatches, "micro-batch"), kMaxDevices));
  for (const Lane& l : p.lanes)
    if (l.device < 0 || l.device >= p.devices || l.index < 0)
      throw Error(fmt::format(
          "a {} lane of index {} is on device {}; the index must be at least 0, the device 0 to {}",
          name_of(l.kind), l.index, l.device, p.devices - 1));
}

void check_blocks(const Program& p) {
  std::int64_t room = kMaxBytes;
  for (const MemoryBlock& b : p.blocks) {
    if (b.bytes < 0 || b.slots < 1 || b.slots > kMaxSlots || b.device < 0 || b.device >= p.devices)
      throw Error(fmt::format(
          "block '{}' has {} bytes and {} slots on device {}; bytes must be ≥ 0, slots 1 to {}, the device below {}",
          b.name, b.bytes, b.slots, b.device, kMaxSlots, p.devices));
    if (b.bytes > room)
      throw Error(fmt::format("block '{}' has {} bytes; all blocks together may have {}", b.name, b.bytes,
                              kMaxBytes));
    room -= b.bytes;
  }
  for (const Member& m : p.members) {
    if (!p.blocks.contains(m.block)) throw Error(fmt::format("value '{}' is in no block", m.name));
    if (m.offset < 0 || m.bytes < 0 || m.offset > p.block(m.block).bytes - m.bytes)
      throw Error(fmt::format("value '{}' does not fit its block", m.name));
    if (1 - m.shift > kMaxAge)
      throw Error(
          fmt::format("'{}' reads a state of age {}; ages are 1 to {}", m.name, 1 - m.shift, kMaxAge));
  }
}

void check_ids(const Program& p) {
  check_devices(p);
  check_blocks(p);
  for (const Instruction& s : p.instructions) {
    if (!p.lanes.contains(s.lane))
      throw Error(fmt::format("instruction '{}' is on unknown lane {}", s.name, s.lane));
    if (s.lag < 0 || s.lag > kMaxLag)
      throw Error(fmt::format("instruction '{}' has lag {}; lags are 0 to {}", s.name, s.lag, kMaxLag));
    const int device = p.lane(s.lane).device;
    for (const auto* members : {&s.reads, &s.writes})
      for (MemberId m : *members) {
        if (!p.members.contains(m))
          throw Error(fmt::format("instruction '{}' uses unknown value {}", s.name, m));
        if (p.block_of(m).device != device)
          throw Error(
              fmt::format("instruction '{}' on device {} uses '{}' of device {}; a transfer must bring it",
                          s.name, device, p.member(m).name, p.block_of(m).device));
      }
    for (const Wait& w : s.waits) {
      if (!p.instructions.contains(w.instruction) || w.back < 0 || w.back > kMaxLag)
        throw Error(fmt::format(
            "instruction '{}' waits for instruction {} of {} units back; there are {} instructions, units are 0 to {}",
            s.name, w.instruction, w.back, p.instructions.size(), kMaxLag));
      if (p.lane_of(w.instruction).device != device)
        throw Error(
            fmt::format("instruction '{}' waits for '{}' on another device; only transfers cross devices",
                        s.name, p.instruction(w.instruction).name));
    }
  }
}

std::int64_t bytes_of(const Program& p, const std::vector<MemberId>& members) {
  std::int64_t sum = 0;
  for (MemberId m : members) sum += p.member(m).bytes;
  return sum;
}

void check_transfer(const Program& p, const std::vector<InstructionId>& ends) {
  const auto has = [&](LaneKind kind) {
    return std::ranges::any_of(ends, [&](InstructionId s) { return p.lane_of(s).kind == kind; });
  };
  const std::string& first = p.instruction(ends[0]).name;
  if (ends.size() != 2 || !has(LaneKind::send) || !has(LaneKind::receive))
    throw Error(fmt::format(
        "missing end: '{}' is an end of a transfer, which needs one send and one receive; there are {} ends",
        first, ends.size()));
  const Lane &a = p.lane_of(ends[0]), &b = p.lane_of(ends[1]);
  if (a.device == b.device || a.index != b.device || b.index != a.device)
    throw Error(fmt::format("'{}' ({}) and '{}' ({}) are ends of one transfer, but not of one link", first,
                            name_of(a, p.devices), p.instruction(ends[1]).name, name_of(b, p.devices)));
  const Instruction& send = p.instruction(a.kind == LaneKind::send ? ends[0] : ends[1]);
  const Instruction& receive = p.instruction(a.kind == LaneKind::send ? ends[1] : ends[0]);
  if (bytes_of(p, send.reads) != bytes_of(p, receive.writes))
    throw Error(fmt::format("'{}' sends {} bytes, '{}' receives {}", send.name, bytes_of(p, send.reads),
                            receive.name, bytes_of(p, receive.writes)));
}

// All ends of a transfer or collective meet in the same unit, for the same batch.
void check_channels(const Program& p) {
  std::map<std::int64_t, std::vector<InstructionId>> channels;
  const auto is_transfer = [&](InstructionId s) {
    return p.lane_of(s).kind == LaneKind::send || p.lane_of(s).kind == LaneKind::receive;
  };
  for (const InstructionId s : p.instructions.ids()) {
    if (p.instruction(s).channel >= 0)
      channels[p.instruction(s).channel].push_back(s);
    else if (is_transfer(s))
      throw Error(fmt::format("missing end: '{}' is on a {} lane but has no channel", p.instruction(s).name,
                              name_of(p.lane_of(s).kind)));
  }
  for (const auto& [channel, ends] : channels) {
    for (InstructionId s : ends)
      if (p.instruction(s).lag != p.instruction(ends[0]).lag)
        throw Error(fmt::format(
            "'{}' (lag {}) and '{}' (lag {}) are ends of one transfer or collective: their lags must be equal",
            p.instruction(ends[0]).name, p.instruction(ends[0]).lag, p.instruction(s).name,
            p.instruction(s).lag));
    if (std::ranges::any_of(ends, is_transfer)) check_transfer(p, ends);
  }
}

}  // namespace

void check_unplanned(const Program& p) {
  check_ids(p);
  check_channels(p);
  const auto made_by = writers(p);
  for (const InstructionId s : p.instructions.ids()) {
    const Instruction& instruction = p.instruction(s);
    for (const Wait& w : instruction.waits)
      if (w.back == 0 && w.instruction >= s)
        throw Error(fmt::format("cycle: '{}' waits in the same unit for '{}', which is listed {}",
                                instruction.name, p.instruction(w.instruction).name,
                                w.instruction == s ? "at its own place" : "after it"));
    for (MemberId m : instruction.reads) {
      const Member& member = p.member(m);
      const Access& writer = made_by[m];
      if (writer.instruction < 0) {
        if (p.block_of(m).arena == Arena::state) continue;  // never assigned: constant state
        throw Error(fmt::format("missing value: '{}' reads '{}', which no instruction makes",
                                instruction.name, member.name));
      }
      if (writer.instruction == s) continue;  // an update that reads what it replaces
      const Access read{s, m, false, instruction.lag - member.shift};
      if (!earlier(writer, read))
        throw Error(fmt::format("cycle: '{}' (lag {}) reads '{}' before '{}' (lag {}) has made it",
                                instruction.name, instruction.lag, member.name,
                                p.instruction(writer.instruction).name,
                                p.instruction(writer.instruction).lag));
    }
  }
}

namespace {

// Whether each value crosses once in a unit: batches overlap, and have one micro-batch. Each end then gets a
// slot more, so that compute of the next unit need not wait for the transfer, nor the transfer for compute.
bool transfers_once_per_unit(const Program& p) {
  return p.microbatches == 1 &&
         std::ranges::any_of(p.instructions, [](const Instruction& s) { return s.lag > 0; });
}

bool is_transfer(const Program& p, const Access& a) {
  const LaneKind kind = p.lane_of(a.instruction).kind;
  return kind == LaneKind::send || kind == LaneKind::receive;
}

}  // namespace

Program with_slots(Program p) {
  const auto accesses = accesses_by_block(p);
  const bool with_transfers = transfers_once_per_unit(p);
  for (const BlockId b : p.blocks.ids()) {
    const bool written = std::ranges::any_of(accesses[b], &Access::write);
    if (p.block(b).arena == Arena::state && !written) p.block(b).slots = 1;  // it never changes
    for (const Access& w : accesses[b]) {
      if (!w.write) continue;
      for (const Access& a : accesses[b]) {
        if (!overlap(p.member(w.member), p.member(a.member))) continue;
        // The slot of index n is written again S units later: every use of n must come before that. An update
        // that can work in place can read the old version and write the new one at once.
        const bool uses_after_write =
            a.instruction > w.instruction || (a.instruction == w.instruction && !a.write &&
                                              !p.instruction(w.instruction).in_place && a.member != w.member);
        const bool is_transferred = with_transfers && (is_transfer(p, w) || is_transfer(p, a));
        p.block(b).slots = std::max(
            p.block(b).slots, units_between(w, a) + (uses_after_write ? 1 : 0) + (is_transferred ? 1 : 0));
      }
    }
  }
  return p;
}

namespace {

void add_wait(Program& p, InstructionId before, InstructionId after, int back) {
  if (p.lane_id(before) == p.lane_id(after)) return;  // lane order ensures it
  auto& waits = p.instruction(after).waits;
  if (!contains(waits, Wait{before, back})) waits.push_back({before, back});
}

void add_data_waits(Program& p) {
  const auto made_by = writers(p);
  for (const InstructionId s : p.instructions.ids())
    for (MemberId m : p.instruction(s).reads) {
      const Access& writer = made_by[m];
      const Access read{s, m, false, p.instruction(s).lag - p.member(m).shift};
      if (writer.instruction >= 0 && writer.instruction != s)
        add_wait(p, writer.instruction, s, units_between(writer, read));
    }
}

// A writer of index n follows every use of index n − slots, and every earlier use of index n itself (an
// in-place successor follows the other readers of what it overwrites).
void add_reuse_waits(Program& p) {
  const HappensBefore known(p);
  const auto accesses = accesses_by_block(p);
  const auto add = [&](const Access& a, const Access& w, int back) {
    if (!known.precedes(a.instruction, w.instruction, back)) add_wait(p, a.instruction, w.instruction, back);
  };
  for (const BlockId b : p.blocks.ids())
    for (const Access& w : accesses[b]) {
      if (!w.write) continue;
      for (const Access& a : accesses[b]) {
        if (a.instruction == w.instruction || !overlap(p.member(w.member), p.member(a.member))) continue;
        add(a, w, p.block(b).slots + units_between(a, w));
        if (a.member != w.member && earlier(a, w)) add(a, w, units_between(a, w));
      }
    }
}

// For every other compute lane of its device, a barrier waits for the lane's last instruction before it, and
// the lane's next instruction waits for the barrier.
void add_barrier_waits(Program& p) {
  for (const InstructionId barrier : p.instructions.ids()) {
    if (!p.instruction(barrier).barrier) continue;
    for (const LaneId l : p.lanes.ids()) {
      if (l == p.lane_id(barrier) || p.lane(l).device != p.lane_of(barrier).device ||
          p.lane(l).kind != LaneKind::compute)
        continue;
      InstructionId before = -1, after = -1, first = -1, last = -1;
      for (const InstructionId s : p.instructions.ids()) {
        if (p.lane_id(s) != l) continue;
        if (first < 0) first = s;
        if (s > barrier && after < 0) after = s;
        if (s < barrier) before = s;
        last = s;
      }
      if (first < 0) continue;
      add_wait(p, before >= 0 ? before : last, barrier, before >= 0 ? 0 : 1);
      add_wait(p, barrier, after >= 0 ? after : first, after >= 0 ? 0 : 1);
    }
  }
}

// A wait is superfluous if an earlier instruction of the same lane, or another wait of the same instruction,
// already comes after the awaited instruction. Waits for copies to the host stay: from there on the memory of
// what was copied is free (memory/placement.cpp).
void drop_implied_waits(Program& p) {
  const HappensBefore all(p);
  const auto n = static_cast<std::int64_t>(p.instructions.size());
  for (const InstructionId s : p.instructions.ids()) {
    auto& waits = p.instruction(s).waits;
    const auto frees = [&](const Wait& w) {
      const Instruction& awaited = p.instruction(w.instruction);
      return awaited.op && awaited.op->makes_host_copy();
    };
    std::erase_if(waits, [&](const Wait& w) {
      if (frees(w)) return false;
      return p.lane_id(w.instruction) == p.lane_id(s) ||
             all.first_after(w.instruction, p.lane_id(s)) < w.back * n + s;
    });
    const std::vector<Wait> kept = waits;
    std::erase_if(waits, [&](const Wait& w) {
      return !frees(w) && std::ranges::any_of(kept, [&](const Wait& other) {
        return other != w && all.precedes(w.instruction, other.instruction, w.back - other.back);
      });
    });
    std::ranges::sort(waits, {}, [](const Wait& w) { return std::pair(w.back, w.instruction); });
  }
}

}  // namespace

Program with_waits(Program p) {
  add_data_waits(p);
  add_reuse_waits(p);
  add_barrier_waits(p);
  drop_implied_waits(p);
  return p;
}

}  // namespace tandem::engine
