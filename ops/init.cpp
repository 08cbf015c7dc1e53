#include <tandem/ops/init.h>

#include <algorithm>
#include <array>
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

using Four = std::array<double, 4>;

// `draw(key, i)` returns the elements from i on, which is a multiple of 4.
template <class Draw> Tensor fill(TensorType type, const std::string& path, std::uint64_t seed, Draw draw) {
  if (!is_floating(type.dtype))
    throw Error(fmt::format("{}: initial weights must be floating, not {}", path, to_string(type)));
  Tensor tensor = Tensor::empty(std::move(type));
  const RngKey key{seed, 0, fnv1a(path)};
  const int threads = useful_threads(TeamSize::current(), tensor.type().bytes());
  const std::int64_t n = tensor.elements();
  parallel_parts(threads, (n + 3) / 4, [&, data = tensor.data()](std::int64_t begin, std::int64_t end) {
    for (std::int64_t first = 4 * begin; first < std::min(4 * end, n); first += 4) {
      const Four four = draw(key, static_cast<std::uint64_t>(first));
      for (std::int64_t i = first; i < std::min(first + 4, n); ++i)
        store_element(tensor.dtype(), data, i, four[static_cast<std::size_t>(i - first)]);
    }
  });
  return tensor;
}

Four normals(const RngKey& key, std::uint64_t first) {
  const auto [a, b] = normal2(key, 0, first / 2);
  const auto [c, d] = normal2(key, 0, first / 2 + 1);
  return {a, b, c, d};
}

}  // namespace

Tensor uniform(TensorType type, double low, double high, const std::string& path, std::uint64_t seed) {
  return fill(std::move(type), path, seed, [=](const RngKey& key, std::uint64_t i) {
    Four four;
    std::ranges::transform(uniform4(key, 0, i / 4), four.begin(),
                           [=](float u) { return low + (high - low) * static_cast<double>(u); });
    return four;
  });
}

Tensor normal(TensorType type, double mean, double deviation, const std::string& path, std::uint64_t seed) {
  return fill(std::move(type), path, seed, [=](const RngKey& key, std::uint64_t i) {
    Four four = normals(key, i);
    for (double& x : four) x = mean + deviation * x;
    return four;
  });
}

Tensor truncated_normal(TensorType type, double deviation, double cut, const std::string& path,
                        std::uint64_t seed) {
  if (!(cut > 0))
    throw Error(fmt::format("{}: a truncated normal needs a cut above 0 deviations, not {}", path, cut));
  return fill(std::move(type), path, seed, [=](const RngKey& key, std::uint64_t i) {
    Four four = normals(key, i);
    for (std::size_t e = 0; e < four.size(); ++e) {
      for (std::uint64_t attempt = 1; std::fabs(four[e]) > cut; ++attempt)
        four[e] = normal(key, attempt, i + e);
      four[e] *= deviation;
    }
    return four;
  });
}

}  // namespace tandem::init
