#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include <tandem/core/runtime/host.h>

namespace tandem {

/// Throws Error unless a learning rate is finite, and 0 or more.
void check_rate(double rate);

// The inputs that a training Program has in addition to its batches, one element per model. The functions
// throw Error if the input has another type: then it is the model's own, and its name is taken.

/// Returns the entries of those models whose input it is.
template <class T> std::span<const T> of_models(const std::vector<T>& all, const engine::ModelRange& models) {
  const std::span<const T> entries(all);
  return models.is_all() ? entries
                         : entries.subspan(static_cast<std::size_t>(models.first),
                                           static_cast<std::size_t>(models.count));
}

/// Fills kLearningRateInput: f32 or f64. `rates` are of all models.
void fill_rates(const std::vector<double>& rates, const engine::HostInput& input);
/// Fills kActiveInput: b8. `active` are of all models.
void fill_active(const std::vector<char>& active, const engine::HostInput& input);
/// Fills kSeedInput: i64. `seeds` are of all models.
void fill_seeds(const std::vector<std::uint64_t>& seeds, const engine::HostInput& input);

}  // namespace tandem
