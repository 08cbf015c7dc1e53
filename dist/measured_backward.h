#pragma once
#include <vector>

#include <tandem/core/runtime/timeline.h>
#include <tandem/core/schedule/program.h>
#include <tandem/dist/all_reduce_costs.h>
#include <tandem/dist/contention_fit.h>

namespace tandem::engine {

/// What a device computes until its gradients are there, as LIBRA profiles it: with nothing beside it.
struct MeasuredBackward {
  std::vector<GradientLayer> layers;  ///< the given ones, with `compute_ms`
  double forward_ms = 0;              ///< from the beginning of a batch to that of its backward pass
};

/// Returns the times of one device's backward pass, from a timeline of batches whose gradients were reduced
/// together after backward (`se`). `layers` are those of `gradient_layers`. A layer's time is that between
/// its gradient being there and the one before, on the rank where it is there last; the median over batches,
/// scaled so that all layers together take the median of the whole backward pass.
/// Compares times of one rank only, so that ranks may have different clocks. Throws Error unless one
/// all-reduce of the device has all the gradients, and some batch was measured whole.
MeasuredBackward measured_backward(const Program& program, const Timeline& timeline,
                                   std::vector<GradientLayer> layers, int device = 0);

/// Returns what the all-reduces of gradients took in each whole batch of a timeline, with any groups: each on
/// the rank where it took least, since all others waited for that rank.
std::vector<BackwardSample> measured_all_reduces(const Program& program, const Timeline& timeline,
                                                 int device = 0);

/// Returns the milliseconds of a backward pass with its all-reduces: from its begin until the last gradient
/// is reduced, on the latest rank; the median over the whole batches of a timeline.
double measured_backward_ms(const Program& program, const Timeline& timeline, int device = 0);

}  // namespace tandem::engine
