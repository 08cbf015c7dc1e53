#include <tandem/core/base/rng.h>

#include <cmath>
#include <numbers>

#include <tandem/core/base/philox.h>

namespace tandem::engine {

namespace {
std::array<std::uint32_t, 4> words(const RngKey& key, std::uint64_t sample, std::uint64_t quad) {
  return philox(philox_counter(key, sample, quad), philox_key(key));
}

double box_muller(std::uint32_t first, std::uint32_t second) {
  const double u1 = (first + 0.5) * 0x1p-32;  // in (0, 1): the logarithm is finite
  const double u2 = second * 0x1p-32;
  return std::sqrt(-2.0 * std::log(u1)) * std::cos(2.0 * std::numbers::pi * u2);
}
}  // namespace

std::array<float, 4> uniform4(const RngKey& key, std::uint64_t sample, std::uint64_t quad) {
  const auto w = words(key, sample, quad);
  return {to_unit(w[0]), to_unit(w[1]), to_unit(w[2]), to_unit(w[3])};
}

float uniform(const RngKey& key, std::uint64_t sample, std::uint64_t element) {
  return to_unit(words(key, sample, element / 4)[element % 4]);
}

double normal(const RngKey& key, std::uint64_t sample, std::uint64_t element) {
  const auto w = words(key, sample, element / 2);
  const std::size_t pair = element % 2 * 2;
  return box_muller(w[pair], w[pair + 1]);
}

std::array<double, 2> normal2(const RngKey& key, std::uint64_t sample, std::uint64_t pair) {
  const auto w = words(key, sample, pair);
  return {box_muller(w[0], w[1]), box_muller(w[2], w[3])};
}

std::uint64_t fnv1a(std::string_view bytes, std::uint64_t basis) {
  for (unsigned char byte : bytes) basis = (basis ^ byte) * 0x100000001b3ull;
  return basis;
}

}  // namespace tandem::engine
