#pragma once
#include <array>
#include <cstdint>
#include <string_view>

namespace tandem::engine {

/// The key of a random number. Random numbers have no state: each is a function of the model's own seed, the
/// batch number, the drawing op (`rng_id` = hash of module path and call number), the global sample index
/// and the element within the sample; never on rank, micro-batch or a model's position in an array.
struct RngKey {
  std::uint64_t seed = 0;
  std::uint64_t batch = 0;
  std::uint64_t rng_id = 0;
};

/// Returns element `element` of global sample `sample`: uniform in [0, 1), with 24 random bits.
float uniform(const RngKey& key, std::uint64_t sample, std::uint64_t element);
/// Returns four consecutive uniforms, elements 4·quad … 4·quad+3 of `sample`, as `uniform` does one by one.
std::array<float, 4> uniform4(const RngKey& key, std::uint64_t sample, std::uint64_t quad);
/// Returns a standard normal number, by Box–Muller in double.
double normal(const RngKey& key, std::uint64_t sample, std::uint64_t element);
/// Returns two consecutive normal numbers, elements 2·pair and 2·pair+1 of `sample`, as `normal` does one by
/// one.
std::array<double, 2> normal2(const RngKey& key, std::uint64_t sample, std::uint64_t pair);

/// Returns the 64-bit FNV-1a hash, used for rng ids and for hashes of Programs.
std::uint64_t fnv1a(std::string_view bytes, std::uint64_t basis = 0xcbf29ce484222325ull);

}  // namespace tandem::engine
