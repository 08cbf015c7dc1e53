#include "dualpipe_training.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <tandem/core/base/units.h>
#include <tandem/core/graph/scope.h>
#include <tandem/datasets/dataset_adapter.h>
#include <tandem/datasets/shuffled_dataset.h>
#include <tandem/dist/median.h>
#include <tandem/ops/index.h>
#include <tandem/ops/loss.h>
#include <tandem/pipeline/schedules.h>
#include <tandem/plan/measured_stages.h>
#include <tandem/train/trainer.h>

#include "busy_share.h"

namespace tandem::apps {
namespace {

constexpr double kMomentum = 0.9;
constexpr std::int64_t kValidationBatch = 250;

// The epochs of a dataset, cut into shorter ones, since a Trainer can validate after each epoch.
class ShortEpochs final : public DatasetAdapter {
 public:
  ShortEpochs(DatasetPtr source, std::int64_t size) : DatasetAdapter(std::move(source)), size_(size) {}
  std::int64_t size() const override { return size_; }
  void get(std::int64_t epoch, std::int64_t index, Sample& sample) const override {
    const std::int64_t n = epoch * size_ + index;
    source().get(n / source().size(), n % source().size(), sample);
  }
  void get_labels(std::int64_t epoch, std::int64_t index, Sample& sample) const override {
    const std::int64_t n = epoch * size_ + index;
    source().get_labels(n / source().size(), n % source().size(), sample);
  }

 private:
  const std::int64_t size_;
};

// Samples first … first + count − 1, and their labels.
std::pair<Tensor, Tensor> samples_at(const Dataset& data, std::int64_t first, std::int64_t count) {
  TensorType type = data.type();
  type.shape.insert(type.shape.begin(), count);
  const Tensor samples = Tensor::empty(type);
  std::vector<std::int32_t> labels;
  Sample sample;
  auto* to = static_cast<std::byte*>(const_cast<void*>(samples.data()));
  for (std::int64_t i = first; i < first + count; ++i) {
    data.get(0, i, sample);
    to = std::ranges::copy(sample.data, to).out;
    labels.push_back(sample.labels.at(0));
  }
  return {samples, Tensor::from(labels, {count})};
}

Validation validate(nn::Module& network, const Dataset& data, std::int64_t iterations) {
  const NoGrad no_grad;
  const nn::ModeScope evaluation(network, false);
  Validation result{iterations};
  for (std::int64_t first = 0; first < data.size(); first += kValidationBatch) {
    const std::int64_t count = std::min(kValidationBatch, data.size() - first);
    const auto [samples, labels] = samples_at(data, first, count);
    const Tensor output = network(samples);
    const double share = static_cast<double>(count) / static_cast<double>(data.size());
    result.loss += share * cross_entropy(output, labels).item();
    result.accuracy += correct_count(output, labels).item() / static_cast<double>(data.size());
  }
  return result;
}

engine::PipelineSchedule with_forward_weights(engine::PipelineSchedule schedule) {
  for (engine::PipelineStage& stage : schedule.stages) {
    stage.weights.backward_age.reset();
    stage.weights.backward_predicts = 0;
  }
  return schedule;
}

TrainerOptions options_of(const DualPipeJob& job) {
  Strategy strategy{.stages = job.stages,
                    .schedule = job.schedule,
                    .lockstep = job.lockstep,
                    .cuts = job.cuts,
                    .optimizer = SgdOptions{.momentum = kMomentum, .rule = job.rule},
                    .measure_prediction = job.measure_prediction,
                    .threads = 1};
  if (job.stashes_forward)
    strategy = with_schedule(
        std::move(strategy),
        with_forward_weights(make_schedule(job.schedule, {.stages = job.stages, .lockstep = job.lockstep})));
  return {.strategy = std::move(strategy),
          .batch_size = job.batch_size,
          .epochs = 0,
          .batches = job.iterations,
          .lr = {job.lr},
          .seeds = {job.seed}};
}

}  // namespace

double best_accuracy(const LearningCurve& curve) {
  if (curve.validations.empty()) return 1.0 / curve.classes;
  return std::ranges::max(curve.validations, {}, &Validation::accuracy).accuracy;
}

LearningCurve train(DualPipeJob job, const DualPipeSamples& samples) {
  LearningCurve curve;
  curve.classes = samples.train->classes();
  std::vector<double> seconds;
  nn::Module& network = *job.network;
  network.initialize(job.seed);
  const auto shuffled = std::make_shared<ShuffledDataset>(samples.train, job.seed);
  Trainer trainer(network, std::make_shared<ShortEpochs>(shuffled, kValidateEvery * job.batch_size),
                  options_of(job));
  const engine::Program& program = trainer.session().program(trainer.training_program());
  if (job.measure_busy)
    trainer.session().measure(
        static_cast<std::size_t>(program.units(job.iterations) * std::ssize(program.instructions)),
        trainer.training_program());
  for (const StageCost& stage : engine::stage_costs(program))
    curve.stage_weights.push_back(stage.weight_bytes / static_cast<double>(size_of(DType::f32)));
  trainer.add({.batch =
                   [&](const BatchResult& b) {
                     curve.loss.push_back(b.loss.at(0));
                     seconds.push_back(b.seconds);
                     if (!job.measure_prediction.empty()) curve.prediction.push_back(b.prediction);
                   },
               .end_epoch =
                   [&](const EpochResult& e) {
                     if (samples.test)
                       curve.validations.push_back(validate(network, *samples.test, e.batches));
                   },
               .end =
                   [&](const EpochResult& e) {
                     if (samples.test && e.batches % kValidateEvery != 0)
                       curve.validations.push_back(validate(network, *samples.test, e.batches));
                   }});
  try {
    trainer.fit();
  } catch (const NonFinite&) {
    curve.diverged = true;
  }
  if (job.measure_busy)
    curve.busy = busy_share(program, trainer.session().timeline(0, trainer.training_program()),
                            program.max_lag, job.iterations);
  curve.step_ms = kMsPerSecond * median(std::move(seconds));
  return curve;
}

}  // namespace tandem::apps
