#include "seed.h"

#include <cstdlib>

#include <fmt/format.h>

#include <tandem/core/base/rng.h>

namespace tandem::testing {
using namespace engine;

std::uint64_t run_seed() {
  static const std::uint64_t seed = [] {
    const char* text = std::getenv("TANDEM_SEED");
    const std::uint64_t s = text ? std::strtoull(text, nullptr, 10) : std::random_device{}();
    fmt::print("random tests: TANDEM_SEED={}\n", s);
    return s;
  }();
  return seed;
}

std::mt19937_64 generator(std::string_view name) {
  return std::mt19937_64(fnv1a(name) ^ run_seed() * 0x9E3779B97F4A7C15ull);
}

int draw_int(std::mt19937_64& rng, int low, int high) {
  return std::uniform_int_distribution<int>(low, high)(rng);
}
bool draw_bool(std::mt19937_64& rng, double probability) {
  return std::bernoulli_distribution(probability)(rng);
}
double draw_real(std::mt19937_64& rng, double low, double high) {
  return std::uniform_real_distribution<double>(low, high)(rng);
}

}  // namespace tandem::testing
