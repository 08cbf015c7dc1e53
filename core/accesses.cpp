#include <tandem/core/accesses.h>

namespace tandem {

std::vector<std::vector<Access>> accesses_by_block(const Program& program) {
  std::vector<std::vector<Access>> result(program.blocks.size());
  for (StepId s = 0; s < static_cast<StepId>(program.steps.size()); ++s) {
    const Step& step = program.step(s);
    const auto add = [&](MemberId m, bool write) {
      const Member& member = program.member(m);
      result[static_cast<std::size_t>(member.block)].push_back({s, m, write, step.lag - member.shift});
    };
    for (MemberId m : step.reads) add(m, false);
    for (MemberId m : step.writes) add(m, true);
  }
  return result;
}

bool overlap(const Member& a, const Member& b) {
  return a.block == b.block && a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
}

}  // namespace tandem
