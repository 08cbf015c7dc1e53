#pragma once
#include <cstdint>
#include <vector>

#include <tandem/core/runtime/host.h>

namespace tandem {

/// Throws Error unless a learning rate is finite, and 0 or more.
void check_rate(double rate);

// The inputs that a training Program has in addition to its batches, one element per model. The functions
// throw Error if the input has another type: then it is the model's own, and its name is taken.

/// Fills kLearningRateInput: f32 or f64.
void fill_rates(const std::vector<double>& rates, const engine::HostInput& input);
/// Fills kSeedInput: i64.
void fill_seeds(const std::vector<std::uint64_t>& seeds, const engine::HostInput& input);

}  // namespace tandem
