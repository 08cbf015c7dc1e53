#include <tandem/nn/initializers.h>

#include <cmath>

#include <fmt/format.h>

#include <tandem/ops/init.h>

namespace tandem::nn {

namespace {
// The fan as a divisor.
double checked(std::int64_t fan, const std::string& path) {
  if (fan <= 0)
    throw Error(fmt::format("{}: initial weights divide by a fan of {}; it must be above 0", path, fan));
  return static_cast<double>(fan);
}
}  // namespace

Initializer kaiming_uniform(double gain) {
  return [=](const TensorType& type, Fans fans, const std::string& path, std::uint64_t seed) {
    const double bound = std::sqrt(3 * gain * gain / checked(fans.in, path));
    return init::uniform(type, -bound, bound, path, seed);
  };
}

Initializer kaiming_normal(double gain) {
  return [=](const TensorType& type, Fans fans, const std::string& path, std::uint64_t seed) {
    return init::normal(type, 0, std::sqrt(gain * gain / checked(fans.in, path)), path, seed);
  };
}

Initializer kaiming_normal_by_outputs(double gain) {
  return [=](const TensorType& type, Fans fans, const std::string& path, std::uint64_t seed) {
    return init::normal(type, 0, std::sqrt(gain * gain / checked(fans.out, path)), path, seed);
  };
}

Initializer normal(double deviation) {
  return [=](const TensorType& type, Fans, const std::string& path, std::uint64_t seed) {
    return init::normal(type, 0, deviation, path, seed);
  };
}

Initializer constant(double value) {
  return [=](const TensorType& type, Fans, const std::string&, std::uint64_t) {
    return Tensor::full(type, value);
  };
}

Initializer xavier_uniform(double gain) {
  return [=](const TensorType& type, Fans fans, const std::string& path, std::uint64_t seed) {
    const double bound = gain * std::sqrt(6 / checked(fans.in + fans.out, path));
    return init::uniform(type, -bound, bound, path, seed);
  };
}

Initializer xavier_normal(double gain) {
  return [=](const TensorType& type, Fans fans, const std::string& path, std::uint64_t seed) {
    return init::normal(type, 0, gain * std::sqrt(2 / checked(fans.in + fans.out, path)), path, seed);
  };
}

Initializer lecun_normal() { return kaiming_normal(1); }

Initializer truncated_normal(double deviation, double cut) {
  return [=](const TensorType& type, Fans, const std::string& path, std::uint64_t seed) {
    return init::truncated_normal(type, deviation, cut, path, seed);
  };
}

Initializer default_uniform() {
  return [](const TensorType& type, Fans fans, const std::string& path, std::uint64_t seed) {
    const double bound = 1 / std::sqrt(checked(fans.in, path));
    return init::uniform(type, -bound, bound, path, seed);
  };
}

}  // namespace tandem::nn
