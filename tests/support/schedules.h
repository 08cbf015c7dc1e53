#pragma once
#include <cstdint>
#include <vector>

#include <tandem/core/schedule/program.h>

namespace tandem::testing {
using namespace engine;

/// The cost of one stage in seconds and bytes.
struct Stage {
  double forward = 1, backward = 1, update = 0;
  std::int64_t activation = 256, weights = 128;
};

/// A model cut into stages, each on its own device.
struct Pipeline {
  std::vector<Stage> stages;
  int microbatches = 1;
  double hop = 0;              ///< seconds of a transfer between neighbors
  std::int64_t boundary = 64;  ///< its bytes
  double corun = 1;            ///< ρ
  bool barriers = false;       ///< lockstep: all stages wait for each other after every tick

  int size() const { return static_cast<int>(stages.size()); }
};
Pipeline equal_stages(int count, const Stage& stage = {}, int microbatches = 1);

/// The known schedules as lists of instructions, not yet planned. The names are F, B, and U with the stage,
/// and with the micro-batch if there are several ("F2/0"). Stage k's weights are the state "w<k>", its saved
/// activations the values "a<k>". Forward instructions lie on compute lane 0.
///
/// Schedules with lag 0 fold the gradients of all micro-batches from the first to the last, then update once.
Program accumulation(const Pipeline& p);  ///< F and B of one micro-batch after the other; plain training if
                                          ///< there is one micro-batch
Program gpipe(const Pipeline& p);         ///< all F, then all B
Program one_f_one_b(const Pipeline& p);   ///< with a flush

/// F and B of different batches at the same time, on two compute lanes; barriers end a unit.
Program dualpipe(const Pipeline& p);
/// DualPipe with weights predicted into scratch for F and for B ("PF", "PB") from the states "w<k>" and
/// "v<k>".
Program spectrain(const Pipeline& p);
/// DualPipe's timing, but F and B of a batch use the weights from when the batch entered.
Program vertical_sync(const Pipeline& p);

/// One F and one B in two ticks, an update after every B. F and B of a batch use the same weights.
Program pipedream(const Pipeline& p);
/// PipeDream-2BW: a unit has `microbatches` ≥ stages micro-batches and one update. Throws Error if there are
/// fewer.
Program double_buffered(const Pipeline& p);

/// One device; each "stage" is a layer. All-reduces ("R") run beside the backward and the next forward.
Program overlapped_all_reduce(const Pipeline& p);
/// One device, two models; each "stage" is a layer. The forward of one model runs beside the backward of the
/// other on one compute lane. Their activations (except the last layer's) are parked on the host in between.
/// Names start with the model: "F1.0", "w1.0".
Program mu_two(const Pipeline& p);

}  // namespace tandem::testing
