#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include <tandem/pipeline/pipeline_schedule.h>
#include <tandem/plan/pipeline_simulation.h>

namespace tandem::apps {

/// F or B of one batch on one stage, and the weights that it meets.
struct WayStep {
  std::int64_t unit = 0;
  int stage = 0;
  bool forward = true;
  std::string weights;  ///< "W5→9": what the stage has at the start of unit 5, moved to that of unit 9
  /// "4→0": updates by which the weights that it reads are older than on one device, and those that it
  /// predicts.
  std::string age;
};

/// Returns the way of a batch through the stages and back, in the order of its ends (of the first
/// micro-batch): the paper's Fig. 8.
std::vector<WayStep> way_of_batch(const engine::PipelineSchedule& schedule,
                                  const engine::PipelineSimulation& simulated, std::int64_t batch);

/// Draws it as text: a row for each stage, a column for each unit. `what` is what goes this way: "batch 5".
std::string drawing_of(const std::vector<WayStep>& way, const std::string& what, const std::string& schedule);

}  // namespace tandem::apps
