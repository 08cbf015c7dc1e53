#pragma once
#include <optional>
#include <vector>

#include <tandem/core/graph/graph.h>

namespace tandem::engine {

/// One stage's forward (F) or backward (B) of one micro-batch, its update (U), or its device's part in a
/// barrier. It belongs to the batch that is `lag` units old: in unit u it works on batch u − lag.
struct Task {
  Phase phase = Phase::forward;
  int stage = 0;
  int microbatch = 0;  ///< 0 for an update, which follows the last; for a barrier: the tick that it ends
  int lag = 0;
  int lane = 0;   ///< compute lane of the stage's device
  int array = 0;  ///< of models, if the Program trains several arrays
  bool operator==(const Task&) const = default;
};
/// Returns what messages call a task: "backward of micro-batch 2 on stage 1".
std::string to_string(const Task& task);

/// Which weights a stage's F and B of batch b compute with. What batch b − age assigned is the state at the
/// start of the run if there was no such batch.
struct WeightRule {
  int forward_age = 1;                ///< F reads what batch b − forward_age assigned
  std::optional<int> backward_age{};  ///< B reads what batch b − backward_age assigned; empty: it uses F's
  /// s_f, s_b: F and B compute with a prediction of the weights that the stage has after so many more updates
  /// (plan/predict_weights.h). 0: with the weights that they read. A B that uses F's predicts nothing itself.
  int forward_predicts = 0, backward_predicts = 0;
  /// In the first batches of a run fewer updates lie ahead; if true, no others are predicted.
  bool only_real_updates = false;
  bool operator==(const WeightRule&) const = default;
};

struct PipelineStage {
  int device = 0;
  WeightRule weights{};
  bool operator==(const PipelineStage&) const = default;
};

/// How a pipeline runs, as data: where each stage lies and which weights it uses, and all tasks of one unit
/// in their list order. docs/design.md ("Time") has the numbers of every schedule in one table.
struct PipelineSchedule {
  std::vector<PipelineStage> stages;
  std::vector<Task> tasks;

  int devices() const;
  int microbatches() const;
  int arrays() const;
  /// Compute lanes of a device, of the one that has most.
  int compute_lanes() const;
  /// Returns whether some lag is above 0. A unit then works on the batch that enters and on older ones, so
  /// several are in flight at once, and weights can be older than the last update.
  bool overlaps_batches() const;
  /// Returns whether all stages update in one unit and, if barriers divide the unit, in one tick.
  bool updates_together() const;
  bool predicts_weights() const;
  bool operator==(const PipelineSchedule&) const = default;
};

/// How arrays of models share a device.
enum class ArrayOrder : std::uint8_t {
  in_turn,  ///< each array does its whole step before the next one on its compute lane begins
  /// The backward of each array beside the forward of the next one, cyclically: of two arrays, a pair
  /// [B0 ‖ F1], [B1 ‖ F0]. The first array's forward works a batch ahead.
  ring,
};
/// Returns the schedule of one array, which has one stage and one micro-batch, for several. Arrays in turn
/// can take several compute lanes: array a takes lane a mod `lanes`.
PipelineSchedule for_arrays(const PipelineSchedule& one, int arrays, ArrayOrder order, int lanes = 1);

/// Throws Error, which names the task, if the schedule is none for a number of stages and micro-batches: if a
/// task is missing, doubled, or comes before a task that it needs, or if a stage reads weights of an age that
/// no update has made by then.
void check(const PipelineSchedule& schedule);

/// The schedule of one micro-batch alone, as evaluation runs it, with every stage on its device.
PipelineSchedule one_by_one(const PipelineSchedule& schedule);

}  // namespace tandem::engine
