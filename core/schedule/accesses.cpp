#include <tandem/core/schedule/accesses.h>

namespace tandem::engine {

IdVector<BlockId, std::vector<Access>> accesses_by_block(const Program& program) {
  IdVector<BlockId, std::vector<Access>> result(program.blocks.size());
  for (const InstructionId s : program.instructions.ids()) {
    const Instruction& instruction = program.instruction(s);
    const auto add = [&](MemberId m, bool write) {
      const Member& member = program.member(m);
      result[member.block].push_back({s, m, write, instruction.lag - member.shift});
    };
    for (MemberId m : instruction.reads) add(m, false);
    for (MemberId m : instruction.writes) add(m, true);
  }
  return result;
}

bool overlap(const Member& a, const Member& b) {
  return a.block == b.block && a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
}

}  // namespace tandem::engine
