#pragma once
#include <string_view>
#include <vector>

#include <tandem/core/graph/graph.h>

namespace tandem {

enum class ScheduleKind : std::uint8_t { plain, gpipe, one_f_one_b, pipedream, dualpipe };
/// Returns "plain", "gpipe", "1f1b", "pipedream" or "dualpipe".
std::string_view name_of(ScheduleKind kind);
/// Returns the schedule with this name. Throws Error listing the names if there is none.
ScheduleKind schedule_from_name(std::string_view name);
/// Returns whether several batches are in flight at once, so that weights can be older than the last update.
bool overlaps_batches(ScheduleKind kind);
/// Returns the number of compute lanes per rank.
int compute_lanes(ScheduleKind kind);

}  // namespace tandem

namespace tandem::engine {

/// When and where a stage does its forward (F), backward (B) and update (U), and which weights it uses.
/// docs/design.md ("Time") has a table of these numbers, one row per schedule.
struct StageTiming {
  int forward_lag = 0, backward_lag = 0;  ///< U has B's lag
  int backward_lane = 0;                  ///< F is on compute lane 0
  int forward_age = 1;                    ///< F of batch b reads what batch b − age assigned
  bool backward_shares_read = true;       ///< B uses F's weights; if false, B reads the latest weights
};

/// One stage's forward or backward of one micro-batch, its update, or its part in a barrier.
struct Task {
  Phase phase;
  int stage;
  int microbatch;  ///< for a barrier: the tick that it ends
  bool operator==(const Task&) const = default;
};

/// A schedule for N stages and m micro-batches: timing per stage and the list order of tasks.
struct PipelineSchedule {
  std::vector<StageTiming> stages;
  std::vector<Task> order;
};

/// Makes a schedule for N = `stages` stages:
/// - gpipe: all forwards, all backwards, update. 1f1b: stage k keeps at most N − k micro-batches in flight.
/// - pipedream (lockstep): a unit is two ticks; stage k keeps N − k versions of its weights.
/// - dualpipe: F of one batch runs beside B of another on two compute lanes; the update follows both.
/// The last two take one batch per unit; its micro-batches run one after the other within a task.
/// With `lockstep` all stages meet at a barrier after every tick: half a unit of pipedream, a unit elsewhere.
PipelineSchedule make_schedule(ScheduleKind kind, int stages, int microbatches, bool lockstep = false);

}  // namespace tandem::engine
