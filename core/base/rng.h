#pragma once
#include <array>
#include <cstdint>
#include <string_view>

namespace tandem::engine {

/// Randomness is a function, not a state. What is drawn depends on the model's own seed, the batch
/// number, the drawing op (`rng_id` = hash of module path and call number), the global sample index
/// and the element within the sample; never on rank, micro-batch or a model's position in an array.
struct RngKey {
  std::uint64_t seed = 0;
  std::uint64_t batch = 0;
  std::uint64_t rng_id = 0;
};

/// Uniform in [0, 1) with 24 random bits: element `element` of global sample `sample`.
float uniform(const RngKey& key, std::uint64_t sample, std::uint64_t element);
/// Four consecutive uniforms: elements 4·quad … 4·quad+3 of `sample` (what `uniform` returns one by one).
std::array<float, 4> uniform4(const RngKey& key, std::uint64_t sample, std::uint64_t quad);
/// Standard normal by Box–Muller, in double.
double normal(const RngKey& key, std::uint64_t sample, std::uint64_t element);

/// 64-bit FNV-1a; names rng ids and Program hashes.
std::uint64_t fnv1a(std::string_view bytes, std::uint64_t basis = 0xcbf29ce484222325ull);

}  // namespace tandem::engine
