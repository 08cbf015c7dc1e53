#include "cifar_job.h"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <numbers>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tandem/core/convert.h>
#include <tandem/core/error.h>
#include <tandem/core/kernel.h>
#include <tandem/core/timeline.h>
#include <tandem/core/trace.h>
#include <tandem/datasets/cifar.h>
#include <tandem/datasets/mapped_dataset.h>
#include <tandem/datasets/shuffled_dataset.h>
#include <tandem/datasets/transforms/normalise.h>
#include <tandem/ops/loss.h>
#include <tandem/ops/pointwise.h>
#include <tandem/ops/reduce.h>

#include "augment.h"

namespace tandem::apps {
namespace {

TransformPtr normalise(const TrainOptions& options) {
  return std::make_shared<Normalise>(kCifarMean, kCifarStd, dtype_from_name(options.dtype));
}

// Transforms lie below the shuffle: what a sample becomes in an epoch depends on the sample, not on its
// place.
DatasetPtr training_data(DatasetPtr data, const TrainOptions& options) {
  return std::make_shared<ShuffledDataset>(
      augmented(std::move(data), options.augment, options.seed[0], normalise(options)), options.seed[0]);
}

LoaderOptions whole_batches(LoaderOptions ahead, const TrainOptions& options) {
  ahead.batch_size = options.batch_size;
  ahead.drop_last = options.drop_last;
  return ahead;
}

std::span<std::int32_t> labels_in(const std::string& name, std::int64_t samples, std::span<std::byte> out) {
  if (name != "labels" || std::ssize(out) != samples * static_cast<std::int64_t>(sizeof(std::int32_t)))
    throw Error(fmt::format(
        "the network asks for input '{}' of {} bytes; CIFAR has images, and a label of 4 bytes a sample",
        name, out.size()));
  return {reinterpret_cast<std::int32_t*>(out.data()), static_cast<std::size_t>(samples)};
}

void fill_seeds(const TrainOptions& options, std::span<std::byte> out) {
  for (std::size_t m = 0; m < options.seed.size(); ++m)
    reinterpret_cast<std::int64_t*>(out.data())[m] = static_cast<std::int64_t>(options.seed[m]);
}

// Of a model whose rate begins at `lr`; what is given in epochs becomes batches.
nn::LrSchedule schedule_of(const TrainOptions& o, double lr, std::int64_t per_epoch, std::int64_t total) {
  const std::int64_t warm = o.warmup_epochs * per_epoch, rest = std::max<std::int64_t>(1, total - warm);
  const double least = lr > 0 ? o.min_lr / lr : 0;
  std::vector<std::int64_t> at;
  for (int epoch : o.decay_epochs) at.push_back(epoch * per_epoch - warm);
  nn::LrSchedule main = nn::constant_lr();
  if (o.sched == "cosine") main = nn::cosine_lr(rest, least);
  if (o.sched == "linear") main = nn::linear_lr(rest, least);
  if (o.sched == "step") main = nn::step_lr(o.decay_epochs.at(0) * per_epoch, o.decay_rate);
  if (o.sched == "multistep") main = nn::multi_step_lr(at, o.decay_rate);
  return nn::warm_up(warm, main, lr > 0 ? o.warmup_lr / lr : 0);
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

CifarTraining::CifarTraining(DatasetPtr data, const TrainOptions& options,
                             std::function<void(std::int64_t, const Batch&)> arrived, LoaderOptions ahead)
    : options_(options),
      arrived_(std::move(arrived)),
      dtype_(dtype_from_name(options.dtype)),
      loader_(training_data(std::move(data), options), whole_batches(ahead, options)) {
  for (double lr : options.lr)
    schedules_.push_back(schedule_of(options, lr, batches_per_epoch(), total_batches()));
}

std::int64_t CifarTraining::total_batches() const {
  const std::int64_t by_epochs = batches_per_epoch() * options_.epochs;
  if (options_.steps == 0) return by_epochs;
  return options_.epochs > 0 ? std::min(options_.steps, by_epochs) : options_.steps;
}

double CifarTraining::rate(std::size_t model, std::int64_t batch) const {
  return options_.lr[model] * schedules_[model](batch);
}

void CifarTraining::fill(const std::string& name, std::int64_t batch, int microbatch, const RankContext& rank,
                         std::span<std::byte> out) {
  if (name == "lr") {
    for (std::size_t m = 0; m < options_.lr.size(); ++m)
      store_element(dtype_, out.data(), static_cast<std::int64_t>(m), rate(m, batch));
    return;
  }
  if (name == "seed") return fill_seeds(options_, out);
  const Rows rows = share_of(samples(batch), rank.replica, rank.replicas, microbatch, options_.microbatches);
  if (name == "images") return loader_.data(batch, rows, out);
  loader_.labels(batch, rows, labels_in(name, rows.count, out));
}

void CifarTraining::deliver(const std::string& name, std::int64_t batch, const RankContext& rank,
                            std::span<const std::byte> value) {
  if (name != "loss" || rank.replica != 0) return;  // all replicas get the same
  Batch result;
  result.samples = samples(batch);
  for (std::size_t m = 0; m < options_.lr.size(); ++m) {
    result.loss.push_back(load_element(dtype_, value.data(), static_cast<std::int64_t>(m)));
    result.lr.push_back(rate(m, batch));
    if (const double loss = result.loss.back(); !std::isfinite(loss) && options_.on_nan == "stop") {
      const std::string which = options_.lr.size() > 1 ? fmt::format(" of model {}", m) : "";
      const std::string what =
          std::isnan(loss) ? "nan" : fmt::format("{}", loss);  // a NaN's sign says nothing
      throw NonFinite(fmt::format("the loss{} is {} at step {}", which, what, batch), batch);
    }
  }
  result.seconds = steady_seconds();
  arrived_(batch, result);
}

CifarEvaluation::CifarEvaluation(DatasetPtr data, const TrainOptions& options, std::int64_t batch_size)
    : options_(options),
      batch_size_(batch_size),
      images_(data->size()),
      loader_(mapped(std::move(data), {normalise(options)}), {.batch_size = batch_size, .drop_last = false}),
      correct_(static_cast<std::size_t>(options.models), 0) {}

std::vector<double> CifarEvaluation::accuracy() const {
  std::vector<double> result;
  for (auto c : correct_) result.push_back(static_cast<double>(c) / static_cast<double>(images_));
  return result;
}

void CifarEvaluation::fill(const std::string& name, std::int64_t batch, int, const RankContext& rank,
                           std::span<std::byte> out) {
  if (name == "seed") return fill_seeds(options_, out);
  const Rows all = share_of(batch_size_, rank.replica, rank.replicas);
  const Rows real{all.first, std::clamp<std::int64_t>(loader_.rows(batch) - all.first, 0, all.count)};
  if (name == "images") {
    const auto bytes =
        out.size() / static_cast<std::size_t>(all.count) * static_cast<std::size_t>(real.count);
    std::ranges::fill(out.subspan(bytes), std::byte{0});
    if (real.count > 0) loader_.data(batch, real, out.first(bytes));
    return;
  }
  const auto labels = labels_in(name, all.count, out),
             known = labels.first(static_cast<std::size_t>(real.count));
  std::ranges::fill(labels.subspan(known.size()), -1);
  if (real.count > 0) loader_.labels(batch, real, known);
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
