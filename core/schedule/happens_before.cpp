#include <tandem/core/schedule/happens_before.h>

namespace tandem::engine {

HappensBefore::HappensBefore(const Program& program, const std::function<bool(const Instruction&)>& unseen)
    : instructions_(static_cast<std::int64_t>(program.instructions.size())), lanes_(program.lanes.size()) {
  struct Edge {
    InstructionId to;
    std::int64_t shift;  // list positions: units · instructions
  };
  const auto n = program.instructions.size();
  IdVector<InstructionId, std::vector<Edge>> edges(n);
  const auto is_seen = [&](InstructionId s) { return !unseen || !unseen(program.instruction(s)); };
  IdVector<LaneId, InstructionId> first_on(lanes_), last_on(lanes_);
  for (const InstructionId s : program.instructions.ids()) {
    const LaneId lane = program.lane_id(s);
    lane_of_.push_back(lane);
    if (last_on[lane] < 0)
      first_on[lane] = s;
    else if (is_seen(last_on[lane]))
      edges[last_on[lane]].push_back({s, 0});
    last_on[lane] = s;
    for (const Wait& w : program.instruction(s).waits)
      edges[w.instruction].push_back({s, w.back * instructions_});
  }
  for (const LaneId lane : program.lanes.ids())
    if (last_on[lane] >= 0 && is_seen(last_on[lane]))
      edges[last_on[lane]].push_back({first_on[lane], instructions_});

  // Shortest paths to every lane, by sweeps against the list order: one sweep settles a unit, waits that
  // reach over several units need a few more.
  first_.assign(n * lanes_, kNever);
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t s = n; s-- > 0;) {
      std::int64_t* row = &first_[s * lanes_];
      for (const Edge& e : edges[s]) {
        const auto to = static_cast<std::size_t>(e.to);
        const std::int64_t* next = &first_[to * lanes_];
        const auto relax = [&](std::size_t lane, std::int64_t at) {
          if (at < row[lane]) {
            row[lane] = at;
            changed = true;
          }
        };
        relax(static_cast<std::size_t>(lane_of_[e.to]), e.to + e.shift);
        for (std::size_t lane = 0; lane < lanes_; ++lane)
          if (next[lane] != kNever) relax(lane, next[lane] + e.shift);
      }
    }
  }
}

}  // namespace tandem::engine
