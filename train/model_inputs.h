#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace tandem {

/// Throws Error unless a learning rate is finite, and 0 or more.
void check_rate(double rate);

// The inputs of a training Program in addition to its batches, one value per model. These functions throw
// Error if `out` has another size: the model then has its own input with this name.

/// Input "lr": f32 or f64.
void fill_rates(std::size_t models, const std::function<double(std::size_t model)>& rate,
                std::span<std::byte> out);
/// Input "seed": i64.
void fill_seeds(const std::vector<std::uint64_t>& seeds, std::span<std::byte> out);

}  // namespace tandem
