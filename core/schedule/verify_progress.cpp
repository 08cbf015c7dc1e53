// Proves that there is no deadlock: all lanes of all devices finish.
#include <tandem/core/schedule/verify.h>

#include <algorithm>
#include <map>
#include <span>

#include <fmt/format.h>

#include <tandem/core/base/error.h>

namespace tandem::engine {
namespace {

// Treats lanes as unbounded queues. A backend's queues hold at least the commands of one unit, which is
// enough: the queues then hold the whole oldest unit that has not ended, and it waits only for itself and
// older units.
class ProgressProof {
 public:
  ProgressProof(const Program& p, std::int64_t units)
      : p_(p), units_(units), lanes_(p.lanes.size()), done_(p.instructions.size(), 0) {
    for (const InstructionId s : p.instructions.ids()) {
      lanes_[instruction(s).lane].instructions.push_back(s);
      if (instruction(s).channel >= 0) ends_[instruction(s).channel].push_back(s);
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
    std::vector<InstructionId> instructions;
    std::size_t next = 0;
    std::int64_t unit = 0;
  };

  const Instruction& instruction(InstructionId s) const { return p_.instructions[s]; }
  bool finished(const LaneState& lane) const { return lane.instructions.empty() || lane.unit == units_; }
  bool awaited_done(const Wait& w, std::int64_t unit) const {
    return unit < w.back || done_[w.instruction] > unit - w.back;
  }
  bool at_head(InstructionId s, std::int64_t unit) const {
    const LaneState& lane = lanes_[instruction(s).lane];
    if (finished(lane) || lane.unit != unit || lane.instructions[lane.next] != s) return false;
    return std::ranges::all_of(instruction(s).waits, [&](const Wait& w) { return awaited_done(w, unit); });
  }
  void complete(InstructionId s) {
    LaneState& lane = lanes_[instruction(s).lane];
    ++done_[s];
    if (++lane.next == lane.instructions.size()) {
      lane.next = 0;
      ++lane.unit;
    }
  }
  bool advance(LaneState& lane) {
    if (finished(lane)) return false;
    const InstructionId s = lane.instructions[lane.next];
    const std::int64_t channel = instruction(s).channel, unit = lane.unit;
    const std::span<const InstructionId> ends = channel < 0 ? std::span(&s, 1) : ends_.at(channel);
    if (!std::ranges::all_of(ends, [&](InstructionId end) { return at_head(end, unit); })) return false;
    for (InstructionId end : ends) complete(end);
    return true;
  }
  std::string explain(const LaneState& lane) const {
    const InstructionId s = lane.instructions[lane.next];
    std::string text = fmt::format("{}: '{}' of unit {}", name_of(p_.lanes[instruction(s).lane], p_.devices),
                                   instruction(s).name, lane.unit);
    for (const Wait& w : instruction(s).waits)
      if (!awaited_done(w, lane.unit))
        return text +
               fmt::format(" waits for '{}' of unit {}", instruction(w.instruction).name, lane.unit - w.back);
    if (instruction(s).channel >= 0)
      for (InstructionId end : ends_.at(instruction(s).channel))
        if (!at_head(end, lane.unit))
          return text + fmt::format(" waits for its other end '{}'", instruction(end).name);
    return text;
  }

  const Program& p_;
  std::int64_t units_;
  IdVector<LaneId, LaneState> lanes_;
  IdVector<InstructionId, std::int64_t> done_;
  std::map<std::int64_t, std::vector<InstructionId>> ends_;
};

}  // namespace

void verify_progress(const Program& p) { ProgressProof(p, max_back(p) + 3).run(); }

}  // namespace tandem::engine
