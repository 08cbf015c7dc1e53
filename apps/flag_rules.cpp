#include "flag_rules.h"

#include <algorithm>
#include <numeric>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tandem/core/base/contains.h>
#include <tandem/core/base/error.h>

#include "pipeline_options.h"
#include "typed_schedule.h"

namespace tandem::apps {
using namespace engine;
namespace {

using O = TrainOptions;
using enum Change;

// The models of all arrays, or of all turns, are those of the run. Their number can be unsettled yet: 0.
void check_sum(const char* what, const std::vector<int>& parts, int models) {
  const int sum = std::accumulate(parts.begin(), parts.end(), 0);
  if (!parts.empty() && models > 0 && sum != models)
    throw Error(fmt::format("the {} {} have {} together, and --models is {}", what, fmt::join(parts, ","),
                            counted(sum, "model"), models));
}

}  // namespace

void check_betas(const O& o) {
  if (o.betas.size() != 2 || std::ranges::any_of(o.betas, [](double beta) { return beta >= 1; }))
    throw Error(fmt::format("there must be two, each in [0, 1), not {}", fmt::join(o.betas, ",")));
}
void check_measured(const O& o) {
  std::set<int> different(o.measure_prediction.begin(), o.measure_prediction.end());
  if (different.size() != o.measure_prediction.size())
    throw Error(fmt::format("each number must be given once, not {}", fmt::join(o.measure_prediction, ",")));
}
void check_arrays(const O& o) { check_sum("arrays", o.arrays, o.models); }
void check_turns(const O& o) { check_sum("turns", o.turns, o.models); }
void check_loss_scale(const O& o) {
  if (o.loss_scale > 0) check(LossScale{.initial = o.loss_scale});
}

Effect needs(std::string O::*member, const std::vector<std::string>& values, const std::string& why) {
  return [=](const O& o) {
    return contains(values, o.*member) ? "" : fmt::format(fmt::runtime(why), o.*member);
  };
}
Effect needs_schedule_that(bool ScheduleFunction::*takes) {
  return [=](const O& o) { return why_not_taken(takes, {typed_schedule(o.schedule)}, o.schedule); };
}
Effect both(const Effect& a, const Effect& b) {
  return [=](const O& o) { return a(o).empty() ? b(o) : a(o); };
}
const Effect needs_drawn_images = needs(&O::data, {"synthetic"}, "with --data {}"),
             needs_curve = needs(&O::sched, {"cosine", "linear"}, "with --sched {}"),
             needs_decay = needs(&O::sched, {"step", "multistep"}, "with --sched {}"),
             needs_sgd = needs(&O::optimizer, {"sgd"}, "with --opt {}"),
             needs_pipeline = needs(&O::parallel, {"pipeline"}, "without --parallel pipeline"),
             needs_schedule_name = [](const O&o) -> std::string {
               return is_schedule_file(o.schedule) ? "with --schedule FILE.json, which says it" : "";
             },
             needs_checkpoints = needs(&O::checkpoint_every, "without --checkpoint-every"),
             not_simulated = not_with(&O::simulate, "with --simulate, which trains nothing"),
             needs_training =
                 both(not_simulated, not_with(&O::evaluate, "with --evaluate, which trains nothing"));

bool plans_memory(const O& o) { return !o.memory_budget.empty() || !o.memory_plan.empty(); }

// The length of the run changes the rates of cosine and linear, which end with the run.
Change by_length(const O& o) { return needs_curve(o).empty() ? learning : nothing; }
// Training drains the pipeline for each checkpoint, which changes losses if batches overlap.
Change by_draining(const O& o) { return schedule_of(o).overlaps_batches() ? arithmetic : nothing; }

}  // namespace tandem::apps
