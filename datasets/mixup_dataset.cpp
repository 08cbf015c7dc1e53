#include <tandem/datasets/mixup_dataset.h>

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include <tandem/core/base/rng.h>

namespace tandem {
using namespace engine;
namespace {

/// Draws from Beta(alpha, alpha) by Jöhnk's method (1964), in logarithms, because u^(1/alpha) underflows for
/// a small alpha. A try succeeds with probability Γ(alpha+1)² / Γ(2·alpha+1): 1/2 for alpha 1, 1/70 for 4.
double draw_beta(double alpha, const RngKey& key, std::uint64_t sample) {
  for (std::uint64_t quad = 1;; ++quad) {
    const auto u = uniform4(key, sample, quad);
    const auto logarithm = [&](int i) {  // of a uniform in (0, 1), over alpha
      return std::log((u[i] + 0x1p-24 * u[i + 1]) + 0x1p-49) / alpha;
    };
    const double x = logarithm(0), y = logarithm(2), most = std::max(x, y);
    const double sum = most + std::log(std::exp(x - most) + std::exp(y - most));
    if (sum <= 0) return std::exp(x - sum);
  }
}

/// The data of the first sample while the second is read.
std::vector<std::byte>& held_data() {
  thread_local std::vector<std::byte> held;
  return held;
}

template <class T> void mix(std::vector<std::byte>& of, const std::vector<std::byte>& with, double lambda) {
  auto* const x = reinterpret_cast<T*>(of.data());
  const auto* const y = reinterpret_cast<const T*>(with.data());
  const T a = static_cast<T>(lambda), b = static_cast<T>(1 - lambda);
  for (std::size_t i = 0; i < of.size() / sizeof(T); ++i) x[i] = a * x[i] + b * y[i];
}

}  // namespace

MixupDataset::MixupDataset(DatasetPtr source, std::int64_t batch_size, double alpha, std::uint64_t seed)
    : DatasetAdapter(std::move(source)),
      batch_size_(batch_size),
      alpha_(alpha),
      seed_(seed),
      type_(this->source().type()) {
  if (batch_size < 1 || !(alpha > 0 && alpha <= 4))
    throw Error(fmt::format(
        "MixupDataset: batch size {}, alpha {}; the batch size must be at least 1, and alpha in (0, 4]",
        batch_size, alpha));
  if ((type_.dtype != DType::f32 && type_.dtype != DType::f64) || this->source().labels_per_sample() != 1)
    throw Error(fmt::format(
        "MixupDataset: samples are {} with {}; they must be f32 or f64 with one label: normalize first",
        to_string(type_), counted(this->source().labels_per_sample(), "label")));
}

MixupDataset::Pair MixupDataset::pair(std::int64_t epoch, std::int64_t index) const {
  static const std::uint64_t id = fnv1a("mixup");
  const RngKey key{seed_, static_cast<std::uint64_t>(epoch), id};
  const std::int64_t batch = index / batch_size_, first = batch * batch_size_;
  const std::int64_t n = std::min(batch_size_, size() - first);
  const auto u = uniform4(key, static_cast<std::uint64_t>(batch), 0);
  const auto shift = static_cast<std::int64_t>((u[0] + 0x1p-24 * u[1]) * static_cast<double>(n));
  return {first + (index - first + shift) % n, draw_beta(alpha_, key, static_cast<std::uint64_t>(batch))};
}

void MixupDataset::get(std::int64_t epoch, std::int64_t index, Sample& sample) const {
  require_index(*this, index);
  const Pair with = pair(epoch, index);
  std::vector<std::byte>& other = held_data();
  source().get(epoch, with.other, sample);
  sample.data.swap(other);
  const std::int32_t second = sample.labels[0];
  source().get(epoch, index, sample);
  type_.dtype == DType::f32 ? mix<float>(sample.data, other, with.lambda)
                            : mix<double>(sample.data, other, with.lambda);
  sample.labels.push_back(second);
  sample.weights = {static_cast<float>(with.lambda), static_cast<float>(1 - with.lambda)};
}

void MixupDataset::get_labels(std::int64_t epoch, std::int64_t index, Sample& sample) const {
  require_index(*this, index);
  const Pair with = pair(epoch, index);
  source().get_labels(epoch, with.other, sample);
  const std::int32_t second = sample.labels[0];
  source().get_labels(epoch, index, sample);
  sample.labels.push_back(second);
  sample.weights = {static_cast<float>(with.lambda), static_cast<float>(1 - with.lambda)};
}

}  // namespace tandem
