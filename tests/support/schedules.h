#pragma once
#include <cstdint>
#include <vector>

#include <tandem/core/schedule/program.h>

namespace tandem::testing {
using namespace engine;

/// What one stage costs: seconds and bytes.
struct Stage {
  double forward = 1, backward = 1, update = 0;
  std::int64_t activation = 256, weights = 128;
};

/// A model cut into stages, one device each.
struct Pipeline {
  std::vector<Stage> stages;
  int microbatches = 1;
  double hop = 0;              ///< seconds of a transfer between neighbors
  std::int64_t boundary = 64;  ///< its bytes
  double corun = 1;            ///< ρ
  bool barriers = false;       ///< lockstep: all stages meet after every tick

  int size() const { return static_cast<int>(stages.size()); }
};
Pipeline equal_stages(int count, const Stage& stage = {}, int microbatches = 1);

/// The known schedules as lists of steps, not yet planned. Steps are called F, B and U with their stage, and
/// their micro-batch where there are several ("F2/0"); stage k's weights are the state "w<k>", its saved
/// activations the values "a<k>". Forward steps lie on compute lane 0.
///
/// Lags 0, the gradients of all micro-batches folded from the first to the last, then one update.
Program accumulation(
    const Pipeline& p);  ///< F and B of one micro-batch after the other; with one it is plain training
Program gpipe(const Pipeline& p);        ///< all F, then all B
Program one_f_one_b(const Pipeline& p);  ///< with a flush

/// F and B of different batches at the same time, on two compute lanes; barriers end a unit.
Program dualpipe(const Pipeline& p);
/// DualPipe with weights predicted into scratch for F and for B ("PF", "PB") from the states "w<k>" and
/// "v<k>".
Program spectrain(const Pipeline& p);
/// DualPipe's timing with F and B of a batch on the weights that were there when the batch entered.
Program vertical_sync(const Pipeline& p);

/// One F and one B in two ticks, an update after every B; F and B of a batch share their weights.
Program pipedream(const Pipeline& p);
/// PipeDream-2BW: a unit is `microbatches` ≥ stages of them, and one update. Throws Error where there are
/// fewer.
Program double_buffered(const Pipeline& p);

/// One device, a layer a "stage": all-reduces ("R") beside the backward and the next forward.
Program overlapped_all_reduce(const Pipeline& p);
/// One device, two models of one layer a "stage": the forward of one beside the backward of the other, on one
/// compute lane, with their activations (but the last layer's) parked on the host in between. Names carry the
/// model first: "F1.0", "w1.0".
Program mu_two(const Pipeline& p);

}  // namespace tandem::testing
