#include <tandem/plan/strategy.h>

#include <tandem/core/error.h>

namespace tandem {

Strategy for_evaluation(Strategy s) {
  if (s.stages > 1 && s.cuts.empty())
    throw Error("evaluation in stages needs the cuts of training; give them in the strategy");
  s.train = false;
  s.microbatches = 1;
  if (s.stages > 1) s.schedule = ScheduleKind::gpipe;
  s.fusion_groups.clear();
  s.swap.clear();
  s.recompute.clear();
  return s;
}

}  // namespace tandem
