#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include <tandem/core/runtime/timeline.h>
#include <tandem/pipeline/pipeline_schedule.h>
#include <tandem/plan/device_shares.h>
#include <tandem/plan/stage_profile.h>

namespace tandem::engine {

/// What a stage or a link did, and with which weights. All numbers count from 0.
struct SimulatedOp {
  enum class Kind : std::uint8_t { forward, backward, send, receive, all_reduce, update };
  Kind kind = Kind::forward;
  int stage = 0;
  std::int64_t batch = 0;
  int microbatch = 0;
  int lane = 0;  ///< number of a compute lane; device at the other end of a transfer; 0 of an all-reduce
  double start_ms = 0, end_ms = 0;
  std::int64_t version = 0;  ///< updates that the stage had applied when it began
  /// Of F and B: the version whose weights it computes with. Older than `version` if old weights are kept,
  /// later if weights are predicted. Otherwise `version`.
  std::int64_t predicts = 0;
};
/// "F", "B", "SEND", "RECV", "ALLREDUCE", "UPDATE".
std::string_view name_of(SimulatedOp::Kind kind);

struct PipelineSimulation {
  double period_ms = 0;              ///< from one update of stage 0 to the next, in the steady state
  DeviceShares shares;               ///< in the steady state
  std::vector<int> in_flight;        ///< by stage: most micro-batches for which it keeps what F made
  std::vector<int> weight_versions;  ///< by stage: slots of its weights
  std::int64_t peak_bytes = 0;       ///< planned, of the device that needs most
  int staleness = 0;  ///< most updates by which the weights that F or B reads are older than on one device
  Timeline timeline;
  std::vector<SimulatedOp> ops;  ///< in the order of their ends
};

/// Enough batches for the steady state of every schedule of a few stages.
constexpr std::int64_t kSteadyBatches = 200;

/// Throws Error if so few batches have no steady state, and says how many have one.
void require_steady_state(const PipelineSchedule& schedule, std::int64_t batches);

/// Runs `batches` batches from an empty to a drained pipeline in the simulator (stage_program.h). The steady
/// state is what runs while batches still enter, without the first half of it, in an even number of periods
/// if there are two. Schedules without a lockstep can take dozens of batches to come to it.
/// Throws the Errors of `require_steady_state` and `stage_program`.
PipelineSimulation simulate_pipeline(const StageProfile& profile, const PipelineSchedule& schedule,
                                     std::int64_t batches);

/// One device that trains the whole network; and N devices that each compute a part of the batch, and then
/// reduce on a ring. Only period and shares are set. Both throw Error without StageProfile::uncut.
PipelineSimulation single_device(const StageProfile& profile);
PipelineSimulation data_parallel(const StageProfile& profile);

}  // namespace tandem::engine
