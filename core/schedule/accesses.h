#pragma once
#include <vector>

#include <tandem/core/schedule/program.h>

namespace tandem::engine {

/// One instruction touching one member. What it touches at index n, it touches in unit n + phase: for
/// ordinary values phase is the instruction's lag, for state it is lag − shift.
struct Access {
  InstructionId instruction = -1;
  MemberId member = -1;
  bool write = false;
  int delay = 0;
};

/// All accesses to each block, in list order.
std::vector<std::vector<Access>> accesses_by_block(const Program& program);

/// Do two members of one block share bytes?
bool overlap(const Member& a, const Member& b);

/// The units between `from` touching an index and `to` touching it (negative: `to` is earlier).
inline int units_between(const Access& from, const Access& to) { return to.delay - from.delay; }

/// Does `a` touch an index before `b` does, in (unit, list position)?
inline bool earlier(const Access& a, const Access& b) {
  return a.delay != b.delay ? a.delay < b.delay : a.instruction < b.instruction;
}

}  // namespace tandem::engine
