#pragma once
#include <vector>

#include <tandem/core/schedule/program.h>

namespace tandem::engine {

/// One access of an instruction to a member. The instruction accesses index n in unit n + delay: for ordinary
/// values the delay is the instruction's lag, for state it is lag − shift.
struct Access {
  InstructionId instruction = -1;
  MemberId member = -1;
  bool write = false;
  int delay = 0;
};

/// Returns, for each block, all accesses to it in list order.
IdVector<BlockId, std::vector<Access>> accesses_by_block(const Program& program);

/// Returns whether two members are in one block and share bytes.
bool overlap(const Member& a, const Member& b);

/// Returns the units between `from` touching an index and `to` touching it (negative: `to` is earlier).
inline int units_between(const Access& from, const Access& to) { return to.delay - from.delay; }

/// Returns whether `a` touches an index before `b` does, in order of (unit, list position).
inline bool earlier(const Access& a, const Access& b) {
  return a.delay != b.delay ? a.delay < b.delay : a.instruction < b.instruction;
}

}  // namespace tandem::engine
