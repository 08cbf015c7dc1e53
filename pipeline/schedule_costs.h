#pragma once
#include <vector>

#include <tandem/pipeline/pipeline_schedule.h>

namespace tandem::engine {

// What a schedule costs a stage, derived from its tasks: their list order, lags, lanes, and barriers.

/// Returns the largest number of micro-batches whose activations a stage keeps at one time: from the begin of
/// their forward to the end of their backward.
int held_activations(const PipelineSchedule& schedule, int stage);

/// Returns the batches whose activations one of a stage's replicas keeps, if all together keep those of
/// `held` micro-batches: an r-th of each; or, where they take whole batches in turn, all of every r-th batch.
double held_batches(int held, int microbatches, int replicas, bool in_turn);

/// Returns the number of versions of its weights that a stage keeps: the slots of a state
/// (docs/design.md, "Time").
int weight_versions(const PipelineSchedule& schedule, int stage);

/// Places for what crosses the cuts of a stage, in batches: beside what it received, a stage has what it
/// sends until that is sent.
struct CrossingSlots {
  double received_values = 0, sent_values = 0;        ///< from the stage before, to the next
  double received_gradients = 0, sent_gradients = 0;  ///< from the next stage, to the one before
};
CrossingSlots crossing_slots(const PipelineSchedule& schedule, int stage);

/// Returns the number of copies of its weights that a stage predicts and holds at one time. They are scratch;
/// a B that uses F's prediction keeps it until then.
int predicted_weights(const PipelineSchedule& schedule, int stage);

/// When a stage computes in a unit: docs/pipelines.md, "How it cuts".
struct StageTiming {
  /// The work between two barriers: which parts of the forward and of the backward of a batch, and which part
  /// of both runs beside the other, on two lanes.
  struct Tick {
    double forward = 0, backward = 0, beside = 0;
    bool operator==(const Tick&) const = default;
  };
  std::vector<Tick> ticks;       ///< different ones
  int ticks_of_unit = 1;         ///< all of them
  int microbatches_of_tick = 1;  ///< that go through the stage together: one if there are no barriers
  bool overlaps = false;         ///< the forward of a batch runs beside the backward of another
  int stages_of_device = 1;      ///< which take turns

  /// Returns the seconds that the stage makes a unit last, with a forward and a backward of so many seconds
  /// per batch. `corun` is ρ: two computations beside each other take ρ times their sum, and at least the
  /// longer one.
  double unit_seconds(double forward, double backward, double corun) const;
};
StageTiming stage_timing(const PipelineSchedule& schedule, int stage);

}  // namespace tandem::engine
