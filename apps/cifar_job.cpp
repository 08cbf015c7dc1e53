#include "cifar_job.h"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <numbers>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tandem/core/convert.h>
#include <tandem/core/error.h>
#include <tandem/core/kernel.h>
#include <tandem/core/rng.h>
#include <tandem/core/timeline.h>
#include <tandem/core/trace.h>
#include <tandem/nn/models/networks.h>
#include <tandem/ops/loss.h>
#include <tandem/ops/pointwise.h>
#include <tandem/ops/reduce.h>

namespace tandem::apps {
namespace {

void fill_images(const CifarData& data, std::span<const std::int64_t> which, DType dtype,
                 std::span<std::byte> out) {
  if (dtype == DType::f64)
    normalise(data, which, {reinterpret_cast<double*>(out.data()), out.size() / sizeof(double)});
  else
    normalise(data, which, {reinterpret_cast<float*>(out.data()), out.size() / sizeof(float)});
}

void require_labels(const std::string& name, std::size_t samples, std::span<const std::byte> out) {
  if (name != "labels" || out.size() != samples * sizeof(std::int32_t))
    throw Error(fmt::format(
        "the network asks for input '{}' of {} bytes; CIFAR has images, and a label of 4 bytes a sample",
        name, out.size()));
}

void fill_seeds(const TrainOptions& options, std::span<std::byte> out) {
  for (std::size_t m = 0; m < options.seed.size(); ++m)
    reinterpret_cast<std::int64_t*>(out.data())[m] = static_cast<std::int64_t>(options.seed[m]);
}

}  // namespace

const char* interruption(int signal) { return signal == SIGTERM ? "terminated" : "interrupted"; }

int signal_behind(const std::exception& error) {
  for (int signal : {SIGINT, SIGTERM})
    if (std::string_view(error.what()) == interruption(signal)) return signal;
  return 0;
}

Graph trace_classifier(nn::Module& model, std::int64_t n, DType dtype, bool training) {
  model.train(training);
  Graph graph;
  Trace trace(graph);
  const Tensor images = trace.input("images", {dtype, {n, kCifarSide, kCifarSide, kCifarChannels}});
  const Tensor labels = trace.input("labels", {DType::i32, {n}});
  const Tensor logits = model(images);
  const Scope scope("loss");
  if (training) {
    trace.result("loss", cross_entropy(logits, labels));
  } else {
    trace.result("correct", correct_count(logits, labels));
    trace.result("finite", sum(scale(logits, 0)));  // 0, or else NaN
  }
  return graph;
}

CifarTraining::CifarTraining(const CifarData& data, const TrainOptions& options,
                             std::function<void(std::int64_t, const Batch&)> arrived)
    : data_(data), options_(options), arrived_(std::move(arrived)), dtype_(dtype_from_name(options.dtype)) {}

std::int64_t CifarTraining::total_batches() const {
  const std::int64_t by_epochs = batches_per_epoch() * options_.epochs;
  if (options_.steps == 0) return by_epochs;
  return options_.epochs > 0 ? std::min(options_.steps, by_epochs) : options_.steps;
}

// Fisher–Yates by Philox: an epoch's order is a function of the first seed and the epoch.
std::vector<std::int64_t> CifarTraining::indices(std::int64_t batch, std::int64_t first, std::int64_t count) {
  const std::int64_t epoch = batch / batches_per_epoch();
  std::shared_ptr<const std::vector<std::int64_t>> order;
  {
    const std::lock_guard lock(mutex_);
    if (shuffled_epoch_ != epoch) {
      auto fresh = std::make_shared<std::vector<std::int64_t>>(static_cast<std::size_t>(data_.size()));
      std::iota(fresh->begin(), fresh->end(), 0);
      const RngKey key{options_.seed[0], static_cast<std::uint64_t>(epoch), fnv1a("shuffle")};
      for (std::size_t i = fresh->size(); i > 1; --i) {
        const double u = uniform(key, i, 0) + 0x1p-24 * uniform(key, i, 1);
        std::swap((*fresh)[i - 1], (*fresh)[static_cast<std::size_t>(u * static_cast<double>(i))]);
      }
      order_ = std::move(fresh);
      shuffled_epoch_ = epoch;
    }
    order = order_;
  }
  const auto from = order->begin() + (batch % batches_per_epoch()) * options_.batch_size + first;
  return {from, from + count};
}

double CifarTraining::rate(std::size_t model, std::int64_t batch) const {
  if (options_.sched == "constant") return options_.lr[model];
  const double progress = static_cast<double>(batch) / static_cast<double>(total_batches());
  return options_.lr[model] * 0.5 * (1 + std::cos(std::numbers::pi * progress));
}

void CifarTraining::fill(const std::string& name, std::int64_t batch, int microbatch, const RankContext& rank,
                         std::span<std::byte> out) {
  if (name == "lr") {
    for (std::size_t m = 0; m < options_.lr.size(); ++m)
      store_element(dtype_, out.data(), static_cast<std::int64_t>(m), rate(m, batch));
    return;
  }
  if (name == "seed") return fill_seeds(options_, out);
  const std::int64_t samples = options_.batch_size / rank.replicas / options_.microbatches;
  const auto which =
      indices(batch, (std::int64_t{rank.replica} * options_.microbatches + microbatch) * samples, samples);
  if (name == "images") return fill_images(data_, which, dtype_, out);
  require_labels(name, which.size(), out);
  for (std::size_t i = 0; i < which.size(); ++i)
    reinterpret_cast<std::int32_t*>(out.data())[i] = data_.labels[static_cast<std::size_t>(which[i])];
}

void CifarTraining::deliver(const std::string& name, std::int64_t batch, const RankContext& rank,
                            std::span<const std::byte> value) {
  if (name != "loss" || rank.replica != 0) return;  // all replicas get the same
  Batch result;
  for (std::size_t m = 0; m < options_.lr.size(); ++m) {
    result.loss.push_back(load_element(dtype_, value.data(), static_cast<std::int64_t>(m)));
    result.lr.push_back(rate(m, batch));
    if (const double loss = result.loss.back(); !std::isfinite(loss)) {
      const std::string which = options_.lr.size() > 1 ? fmt::format(" of model {}", m) : "";
      const std::string what =
          std::isnan(loss) ? "nan" : fmt::format("{}", loss);  // a NaN's sign says nothing
      throw NonFinite(fmt::format("the loss{} is {} at step {}", which, what, batch), batch);
    }
  }
  result.seconds = steady_seconds();
  arrived_(batch, result);
}

CifarEvaluation::CifarEvaluation(const CifarData& data, const TrainOptions& options, std::int64_t batch_size)
    : data_(data),
      options_(options),
      batch_size_(batch_size),
      correct_(static_cast<std::size_t>(options.models), 0) {}

std::vector<double> CifarEvaluation::accuracy() const {
  std::vector<double> result;
  for (auto c : correct_)
    result.push_back(static_cast<double>(c) / static_cast<double>(std::max<std::int64_t>(data_.size(), 1)));
  return result;
}

void CifarEvaluation::fill(const std::string& name, std::int64_t batch, int, const RankContext& rank,
                           std::span<std::byte> out) {
  if (name == "seed") return fill_seeds(options_, out);
  const std::int64_t samples = batch_size_ / rank.replicas;
  const std::int64_t first = batch * batch_size_ + rank.replica * samples;
  std::vector<std::int64_t> which;
  for (std::int64_t i = first; i < first + samples; ++i) which.push_back(std::min(i, data_.size() - 1));
  if (name == "images") return fill_images(data_, which, dtype_from_name(options_.dtype), out);
  require_labels(name, which.size(), out);
  for (std::size_t i = 0; i < which.size(); ++i) {
    const bool real = first + static_cast<std::int64_t>(i) < data_.size();
    reinterpret_cast<std::int32_t*>(out.data())[i] =
        real ? data_.labels[static_cast<std::size_t>(which[i])] : -1;
  }
}

void CifarEvaluation::deliver(const std::string& name, std::int64_t, const RankContext& rank,
                              std::span<const std::byte> value) {
  if (rank.replica != 0) return;  // all replicas get the same
  for (std::size_t m = 0; m < correct_.size(); ++m) {
    const auto model = static_cast<std::int64_t>(m);
    if (name == "correct")
      correct_[m] += static_cast<std::int64_t>(load_element(DType::i32, value.data(), model));
    if (name == "finite" && load_element(dtype_from_name(options_.dtype), value.data(), model) != 0)
      throw Error(fmt::format(
          "the trained network{} gives values that are not finite; lower --lr, or look at the data",
          correct_.size() > 1 ? fmt::format(" of model {}", m) : ""));
  }
}

}  // namespace tandem::apps
