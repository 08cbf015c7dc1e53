#include <tandem/memory/placement.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include <tandem/core/base/error.h>
#include <tandem/core/base/memory.h>
#include <tandem/core/schedule/accesses.h>
#include <tandem/core/schedule/happens_before.h>
#include <tandem/core/schedule/waits.h>
#include <tandem/memory/taken_bytes.h>

namespace tandem::engine {
namespace {

// Decides whether two blocks can share bytes. Positions are for index 0 and count on from unit 0.
struct Life {
  std::int64_t begin = 0, end = 0;            // in the list order
  IdVector<LaneId, std::int64_t> free_on;     // per lane: the first position after all uses
  IdVector<LaneId, std::int64_t> written_on;  // per lane: the first write, kNever if none
};

class LifeTable {
 public:
  explicit LifeTable(const Program& p)
      : p_(p), order_(p), waits_(p, is_host_copy), accesses_(accesses_by_block(p)) {
    for (const BlockId b : p.blocks.ids())
      for (const Access& a : accesses_[b])
        if (a.write) writers_[{p.block(b).device, p.block(b).arena}].insert(lane(a));
  }

  bool used(BlockId b) const { return !accesses_[b].empty(); }

  Life of(BlockId b) const {
    const auto& accesses = accesses_[b];
    const auto instructions = static_cast<std::int64_t>(p_.instructions.size());
    Life life;
    life.free_on.assign(p_.lanes.size(), 0);
    life.written_on.assign(p_.lanes.size(), HappensBefore::kNever);
    const Access* first = nullptr;
    for (const Access& a : accesses)
      if (a.write && (!first || earlier(a, *first))) first = &a;
    if (!first) throw Error(fmt::format("block '{}' is never written", p_.block(b).name));
    life.begin = first->delay * instructions + first->instruction;
    for (const Access& a : accesses) {
      const std::int64_t at = a.delay * instructions + a.instruction;
      for (const LaneId l : p_.lanes.ids()) {
        const std::int64_t after = order_.first_after(a.instruction, l);
        auto& free = life.free_on[l];
        free = after == HappensBefore::kNever ? after : std::max(free, a.delay * instructions + after);
      }
      if (a.write) {
        auto& written = life.written_on[lane(a)];
        written = std::min(written, at);
      }
    }
    // Members side by side can follow each other at any distance; then the block is always in use.
    life.end = life.begin + p_.block(b).slots * instructions;
    for (const LaneId l : writers_.at({p_.block(b).device, p_.block(b).arena}))
      life.end = std::min(life.end, known_on(l, accesses));
    return life;
  }

 private:
  LaneId lane(const Access& a) const { return p_.lane_id(a.instruction); }

  static bool is_host_copy(const Instruction& s) { return s.op && s.op->makes_host_copy(); }

  // The first list position at which a lane knows that all uses are over: its own, and those it waited for. A
  // copy to the host must be awaited itself, as memory plans have it.
  std::int64_t known_on(LaneId l, const std::vector<Access>& accesses) const {
    const auto instructions = static_cast<std::int64_t>(p_.instructions.size());
    std::int64_t known = 0;
    for (const Access& a : accesses) {
      const bool is_own = lane(a) == l && !is_host_copy(p_.instruction(a.instruction));
      const std::int64_t after = is_own ? a.instruction + 1 : waits_.first_after(a.instruction, l);
      if (after == HappensBefore::kNever) return after;
      known = std::max(known, a.delay * instructions + after);
    }
    return known;
  }

  const Program& p_;
  HappensBefore order_, waits_;
  IdVector<BlockId, std::vector<Access>> accesses_;
  std::map<std::pair<int, Arena>, std::set<LaneId>> writers_;  // of a device's arena
};

std::int64_t modulo(std::int64_t a, std::int64_t m) { return (a % m + m) % m; }

// The blocks of a region that have their offsets. Two blocks must not overlap if one is written, on some
// lane, before that lane knows that the uses of the other are over.
class Region {
 public:
  Region(const std::vector<std::pair<BlockId, Life>>& blocks, std::int64_t cycle) : cycle_(cycle) {
    std::map<LaneId, std::vector<CyclicInterval>> uses, writes;
    for (const auto& [block, life] : blocks)
      for (const LaneId l : life.written_on.ids())
        if (written(life, l)) writes[l].push_back(write(life, l));
    for (const auto& [lane, of_lane] : writes) {
      for (const auto& [block, life] : blocks) uses[lane].push_back(use(life, lane));
      lanes_.push_back({lane, TakenBytes(cycle, uses[lane]), TakenBytes(cycle, of_lane)});
    }
  }

  // Returns the lowest offset clear of the blocks that must not overlap this one.
  std::int64_t lowest(const Life& life, std::int64_t bytes) const {
    std::vector<ByteRange> taken;
    for (const Lane& l : lanes_) {
      if (written(life, l.lane)) l.in_use.find(write(life, l.lane), taken);
      l.written.find(use(life, l.lane), taken);
    }
    std::ranges::sort(taken, {}, &ByteRange::begin);
    std::int64_t offset = 0;
    for (const ByteRange& range : taken) {
      if (range.begin >= offset + bytes) break;
      offset = std::max(offset, range.end);
    }
    return offset;
  }
  void place(const Life& life, ByteRange bytes) {
    for (Lane& l : lanes_) {
      if (written(life, l.lane)) l.written.take(write(life, l.lane), bytes);
      l.in_use.take(use(life, l.lane), bytes);
    }
  }

 private:
  struct Lane {
    LaneId lane;
    TakenBytes in_use;   // as far as the lane knows
    TakenBytes written;  // by the lane for the first time
  };
  static bool written(const Life& life, LaneId lane) {
    return life.written_on[lane] != HappensBefore::kNever;
  }
  CyclicInterval write(const Life& life, LaneId lane) const {
    return {modulo(life.written_on[lane], cycle_), 1};
  }
  CyclicInterval use(const Life& life, LaneId lane) const {
    const std::int64_t known = std::max(life.end, life.free_on[lane]);
    return {modulo(life.begin, cycle_),
            known == HappensBefore::kNever ? cycle_ : std::min(known - life.begin, cycle_)};
  }

  std::int64_t cycle_;
  std::vector<Lane> lanes_;  // those that write
};

using Blocks = std::vector<std::pair<BlockId, Life>>;

// Places the blocks of a region, one after the other, each as low as it can lie.
class RegionPlan {
 public:
  RegionPlan(const Program& p, Blocks blocks, std::int64_t cycle)
      : p_(p), blocks_(std::move(blocks)), cycle_(cycle) {}

  // Largest block first. If that leaves gaps, also other orders: first those that need most bytes for the
  // longest time, and then orders near this one, which are drawn.
  void find() {
    constexpr int kMostOrders = 50;
    constexpr double kTight = 1.01, kMostChange = 0.25;  // of a logarithm
    std::mt19937 rng(1);
    std::uniform_real_distribution<double> change(-kMostChange, kMostChange);
    const double tight = kTight * static_cast<double>(most_live_bytes());
    for (int order = 0; order<kMostOrders&& static_cast<double>(extent_)> tight; ++order) {
      sort_by([&](BlockId block, const Life& life) {
        const auto size = static_cast<double>(bytes(block));
        if (order == 0) return size;
        const auto time = static_cast<double>(std::clamp<std::int64_t>(life.end - life.begin, 1, cycle_));
        return size * time * (order == 1 ? 1 : std::exp(change(rng)));
      });
      place();
    }
  }

  std::int64_t extent() const { return extent_; }
  std::int64_t offset(BlockId b) const { return offsets_.at(b); }

 private:
  std::int64_t bytes(BlockId b) const { return align_up(p_.block(b).bytes); }
  // Those first of which `rank` is highest. It is called once for each.
  template <class Rank> void sort_by(const Rank& rank) {
    std::map<BlockId, double> ranks;
    for (const auto& [block, life] : blocks_) ranks[block] = rank(block, life);
    std::ranges::sort(blocks_, [&](const auto& x, const auto& y) {
      return std::tuple(-ranks[x.first], x.second.begin, x.first) <
             std::tuple(-ranks[y.first], y.second.begin, y.first);
    });
  }

  // Keeps the offsets if their extent is the lowest so far.
  void place() {
    Region placed(blocks_, cycle_);
    std::map<BlockId, std::int64_t> offsets;
    std::int64_t extent = 0;
    for (const auto& [block, life] : blocks_) {
      const std::int64_t offset = offsets[block] = placed.lowest(life, bytes(block));
      placed.place(life, {offset, offset + bytes(block)});
      extent = std::max(extent, offset + bytes(block));
      if (extent >= extent_) return;
    }
    offsets_ = std::move(offsets);
    extent_ = extent;
  }

  // At any place of the cycle: no placement takes less.
  std::int64_t most_live_bytes() const {
    std::map<std::int64_t, std::int64_t> changes;
    std::int64_t always = 0;
    for (const auto& [block, life] : blocks_) {
      if (life.end - life.begin >= cycle_) {
        always += bytes(block);
        continue;
      }
      const std::int64_t begin = modulo(life.begin, cycle_), end = begin + (life.end - life.begin);
      changes[begin] += bytes(block);
      changes[std::min(end, cycle_)] -= bytes(block);
      if (end > cycle_) changes[0] += bytes(block), changes[end - cycle_] -= bytes(block);
    }
    std::int64_t live = always, most = always;
    for (const auto& [place, change] : changes) most = std::max(most, live += change);
    return most;
  }

  const Program& p_;
  Blocks blocks_;  // in the order in which they are placed
  const std::int64_t cycle_;
  std::map<BlockId, std::int64_t> offsets_;
  std::int64_t extent_ = std::numeric_limits<std::int64_t>::max();
};

void place_by_lifetime(Program& p, const LifeTable& lives, int device, Arena arena,
                       std::int64_t& arena_bytes) {
  std::map<int, Blocks> regions;  // by slot count
  for (const BlockId b : p.blocks.ids()) {
    MemoryBlock& block = p.block(b);
    if (block.device != device || block.arena != arena) continue;
    block.offsets.assign(static_cast<std::size_t>(block.slots), 0);
    if (!lives.used(b)) continue;
    const Life& life = regions[block.slots].emplace_back(b, lives.of(b)).second;
    block.begin = life.begin;
    block.end = life.end;
  }
  for (const auto& [slots, region] : regions) {
    RegionPlan plan(p, region, slots * static_cast<std::int64_t>(p.instructions.size()));
    plan.find();
    for (const auto& [b, life] : region)
      for (int k = 0; k < slots; ++k)
        p.block(b).offsets[k] = arena_bytes + k * plan.extent() + plan.offset(b);
    arena_bytes += slots * plan.extent();
  }
}

void place_state(Program& p, int device, std::int64_t& arena_bytes) {
  std::vector<MemoryBlock*> blocks;
  for (MemoryBlock& b : p.blocks)
    if (b.device == device && b.arena == Arena::state) {
      b.offsets.clear();
      blocks.push_back(&b);
    }
  std::ranges::sort(blocks, {}, [](const MemoryBlock* b) {
    return std::pair(b->name.starts_with(kOptimizerPath), std::string_view(b->name));
  });
  for (int version = 0; !blocks.empty(); ++version) {
    std::erase_if(blocks, [&](const MemoryBlock* b) { return version >= b->slots; });
    for (MemoryBlock* b : blocks) {
      b->offsets.push_back(arena_bytes);
      arena_bytes += align_up(b->bytes);
    }
  }
}

}  // namespace

Program placed(Program p) {
  const LifeTable lives(p);
  p.memory.assign(static_cast<std::size_t>(p.devices), {});
  for (int device = 0; device < p.devices; ++device) {
    DeviceMemory& memory = p.memory[device];
    place_state(p, device, memory.state);
    place_by_lifetime(p, lives, device, Arena::work, memory.work);
    place_by_lifetime(p, lives, device, Arena::host, memory.host);
    const auto live = live_bytes(p, device);
    memory.live_peak = live.empty() ? 0 : *std::max_element(live.begin(), live.end());
  }
  return p;
}

Program planned(Program unplanned) {
  unplanned.max_lag = 0;
  for (const Instruction& s : unplanned.instructions) unplanned.max_lag = std::max(unplanned.max_lag, s.lag);
  check_unplanned(unplanned);
  return placed(with_waits(with_slots(std::move(unplanned))));
}

}  // namespace tandem::engine
