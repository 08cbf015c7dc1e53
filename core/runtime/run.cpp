#include <tandem/core/runtime/backend.h>

#include <algorithm>

namespace tandem::engine {

void run(Backend& backend, std::int64_t batches, const RunLimit* limit, std::int64_t first) {
  const Program& program = backend.program();
  const auto units = [&] {
    return program.units(limit ? std::clamp<std::int64_t>(limit->end() - first, 0, batches) : batches);
  };
  for (std::int64_t unit = 0; unit < units() && !backend.failed(); ++unit) {
    for (const InstructionId s : program.instructions.ids()) {
      const Instruction& instruction = program.instruction(s);
      for (const Wait& w : instruction.waits)
        if (unit >= w.back) backend.wait(instruction.lane, w.instruction, unit - w.back);
      const std::int64_t batch = unit - instruction.lag;
      backend.issue(s, unit, batch >= 0 && batch < batches ? batch : -1);
    }
  }
  backend.flush();
}

}  // namespace tandem::engine
