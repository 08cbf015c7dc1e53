#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace tandem {

/// Throws Error unless a learning rate is finite, and 0 or more.
void check_rate(double rate);

// What a training Program asks for beside its batches, one a model. Throw Error where so many bytes are not
// that: the model then has an input of its own of this name.

/// Input "lr": f32 or f64.
void fill_rates(std::size_t models, const std::function<double(std::size_t model)>& rate,
                std::span<std::byte> out);
/// Input "seed": i64.
void fill_seeds(const std::vector<std::uint64_t>& seeds, std::span<std::byte> out);

}  // namespace tandem
