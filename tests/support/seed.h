#pragma once
#include <cstdint>
#include <random>
#include <string_view>

namespace tandem::testing {

/// The run's seed: TANDEM_SEED, or a random one, printed once so that a failure can be repeated.
std::uint64_t run_seed();

/// A generator that depends only on the run's seed and on `name`.
std::mt19937_64 generator(std::string_view name);

/// Uniform in low … high, both included.
int draw_int(std::mt19937_64& rng, int low, int high);
bool draw_bool(std::mt19937_64& rng, double probability);
double draw_real(std::mt19937_64& rng, double low, double high);

}  // namespace tandem::testing
