#include <tandem/ops/init.h>

#include <cmath>

#include <fmt/format.h>

#include <tandem/core/base/convert.h>
#include <tandem/core/base/error.h>
#include <tandem/core/base/rng.h>
#include <tandem/core/base/team.h>
#include <tandem/ops/cpu/parallel.h>

namespace tandem::init {
using namespace engine;
namespace {

template <class Draw> Tensor fill(TensorType type, const std::string& path, std::uint64_t seed, Draw draw) {
  if (!is_floating(type.dtype))
    throw Error(fmt::format("{}: initial weights must be floating, not {}", path, to_string(type)));
  Tensor tensor = Tensor::empty(std::move(type));
  const RngKey key{seed, 0, fnv1a(path)};
  const int threads = useful_threads(TeamSize::current(), tensor.type().bytes());
  parallel_parts(threads, tensor.elements(), [&, data = tensor.data()](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      store_element(tensor.dtype(), data, i, draw(key, static_cast<std::uint64_t>(i)));
  });
  return tensor;
}

}  // namespace

Tensor uniform(TensorType type, double low, double high, const std::string& path, std::uint64_t seed) {
  return fill(std::move(type), path, seed, [=](const RngKey& key, std::uint64_t i) {
    return low + (high - low) * static_cast<double>(uniform(key, 0, i));
  });
}

Tensor normal(TensorType type, double mean, double deviation, const std::string& path, std::uint64_t seed) {
  return fill(std::move(type), path, seed,
              [=](const RngKey& key, std::uint64_t i) { return mean + deviation * normal(key, 0, i); });
}

Tensor truncated_normal(TensorType type, double deviation, double cut, const std::string& path,
                        std::uint64_t seed) {
  if (!(cut > 0))
    throw Error(fmt::format("{}: a truncated normal needs a cut above 0 deviations, not {}", path, cut));
  return fill(std::move(type), path, seed, [=](const RngKey& key, std::uint64_t i) {
    for (std::uint64_t attempt = 0;; ++attempt)
      if (const double x = normal(key, attempt, i); std::fabs(x) <= cut) return deviation * x;
  });
}

}  // namespace tandem::init
