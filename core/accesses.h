#pragma once
#include <vector>

#include <tandem/core/program.h>

namespace tandem {

/// One step touching one member. What it touches at index n, it touches in unit n + phase: for ordinary
/// values phase is the step's lag, for state it is lag − shift.
struct Access {
  StepId step = -1;
  MemberId member = -1;
  bool write = false;
  int phase = 0;
};

/// All accesses to each block, in list order.
std::vector<std::vector<Access>> accesses_by_block(const Program& program);

/// Do two members of one block share bytes?
bool overlap(const Member& a, const Member& b);

/// The units between `from` touching an index and `to` touching it (negative: `to` is earlier).
inline int units_between(const Access& from, const Access& to) { return to.phase - from.phase; }

/// Does `a` touch an index before `b` does, in (unit, list position)?
inline bool earlier(const Access& a, const Access& b) {
  return a.phase != b.phase ? a.phase < b.phase : a.step < b.step;
}

}  // namespace tandem
