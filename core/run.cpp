#include <tandem/core/backend.h>

namespace tandem {

void run(Backend& backend, std::int64_t batches) {
  const Program& program = backend.program();
  const std::int64_t units = program.units(batches);
  for (std::int64_t unit = 0; unit < units && !backend.failed(); ++unit) {
    for (StepId s = 0; s < static_cast<StepId>(program.steps.size()); ++s) {
      const Step& step = program.step(s);
      for (const Wait& w : step.waits)
        if (unit >= w.back) backend.wait(step.lane, w.step, unit - w.back);
      const std::int64_t batch = unit - step.lag;
      backend.issue(s, unit, batch >= 0 && batch < batches ? batch : -1);
    }
  }
  backend.flush();
}

}  // namespace tandem
