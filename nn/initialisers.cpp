#include <tandem/nn/initialisers.h>

#include <cmath>

#include <fmt/format.h>

#include <tandem/core/error.h>
#include <tandem/ops/init.h>

namespace tandem::nn {

Initialiser kaiming_uniform(double gain) {
  return [=](const TensorType& type, Fans fans, const std::string& path, std::uint64_t seed) {
    return tandem::kaiming_uniform(type, fans.in, path, seed, gain);
  };
}

Initialiser kaiming_normal(double gain) {
  return [=](const TensorType& type, Fans fans, const std::string& path, std::uint64_t seed) {
    return tandem::kaiming_normal(type, fans.in, path, seed, gain);
  };
}

Initialiser xavier_uniform(double gain) {
  return [=](const TensorType& type, Fans fans, const std::string& path, std::uint64_t seed) {
    const double bound = gain * std::sqrt(6 / static_cast<double>(fans.in + fans.out));
    return uniform(type, -bound, bound, path, seed);
  };
}

Initialiser xavier_normal(double gain) {
  return [=](const TensorType& type, Fans fans, const std::string& path, std::uint64_t seed) {
    return normal(type, 0, gain * std::sqrt(2 / static_cast<double>(fans.in + fans.out)), path, seed);
  };
}

Initialiser lecun_normal() { return kaiming_normal(1); }

Initialiser truncated_normal(double deviation, double cut) {
  if (!(cut > 0))
    throw Error(fmt::format("a normal distribution cut at {} deviations has nothing left", cut));
  return [=](const TensorType& type, Fans, const std::string& path, std::uint64_t seed) {
    return tandem::truncated_normal(type, deviation, cut, path, seed);
  };
}

Initialiser default_uniform() {
  return [](const TensorType& type, Fans fans, const std::string& path, std::uint64_t seed) {
    const double bound = 1 / std::sqrt(static_cast<double>(fans.in));
    return uniform(type, -bound, bound, path, seed);
  };
}

}  // namespace tandem::nn
