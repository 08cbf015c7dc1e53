#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <tandem/core/graph/tensor.h>
#include <tandem/core/runtime/comm.h>
#include <tandem/core/runtime/host.h>
#include <tandem/core/runtime/session.h>
#include <tandem/nn/module.h>
#include <tandem/plan/measure_prediction.h>
#include <tandem/plan/strategy.h>

namespace tandem::testing {
using namespace engine;

/// A small training job on random data, to be run under many strategies and compared.
struct Job {
  std::function<std::unique_ptr<nn::Module>()> model;
  /// Makes logits (N, classes) of the samples; empty: the model does.
  std::function<Tensor(nn::Module& model, const Tensor& samples)> forward{};
  Tensor logits(nn::Module& net, const Tensor& samples) const {
    return forward ? forward(net, samples) : net(samples);
  }
  Shape sample;  ///< shape of one sample
  int classes = 5;
  DType dtype = DType::f32;
  std::int64_t batch_size = 8;                              ///< global
  std::vector<std::int64_t> drains;                         ///< batches of each run from empty to drained
  std::vector<std::uint64_t> seeds = {1};                   ///< per model
  std::vector<double> rates = {0.05};                       ///< per model
  std::function<double(std::int64_t batch)> rate_factor{};  ///< multiplies them; empty: 1
  double rate(std::size_t model, std::int64_t batch) const {
    return rates.at(model) * (rate_factor ? rate_factor(batch) : 1);
  }
  std::uint64_t data_seed = 7;
  bool poison = true;
  std::int64_t period = 0;  ///< after this many batches the samples repeat; 0: never
};

struct Outcome {
  std::vector<std::vector<double>> losses;  ///< [batch][model]
  StateDict state;
  std::vector<std::vector<PredictionError>> predictions;  ///< [batch], if the strategy measures them
  std::int64_t planned_peak = 0, executed_peak = 0;
  Program program;
  Timeline timeline;  ///< executed
};

/// Trains under a strategy, with its replicas, stages, and so on. Without `process` the ranks are threads.
/// With it this process is one of several ranks: the losses are the last stage's, and the state is complete
/// on the last stage.
Outcome train(const Job& job, Strategy strategy, std::unique_ptr<Comm> process = nullptr);
/// The same, with these Comms: of all ranks, which are threads; or of this process.
Outcome train(const Job& job, Strategy strategy, std::vector<std::unique_ptr<Comm>> comms);

/// The largest difference between the losses and states of two trainings, relative for values above 1. It is
/// infinite if their names or counts differ, or if anything is not finite.
double largest_difference(const Outcome& a, const Outcome& b);

/// The job's forward graph for one replica's micro-batch.
Graph trace_job(const Job& job, std::int64_t samples);

/// The job's Program under a strategy.
Program program_of(const Job& job, const Strategy& strategy);

/// Initial state, with a leading model axis where there are several models.
StateDict initial_state(const Job& job);

/// Supplies the job's samples, rates, and seeds to a Program with this number of micro-batches.
class JobHost : public Host {
 public:
  /// `measured` is the strategy's measure_prediction.
  JobHost(const Job& job, int microbatches, std::vector<int> measured = {})
      : job_(job), microbatches_(microbatches), measured_(std::move(measured)) {}
  void fill(const HostInput& in) override;
  void deliver(const HostResult& result) override;
  /// [batch][model], of replica 0.
  std::vector<std::vector<double>> losses;
  std::vector<std::vector<PredictionError>> predictions;  ///< [batch], of replica 0

 private:
  const Job& job_;
  int microbatches_;
  std::vector<int> measured_;
  std::mutex mutex_;
};

/// One sample's pixels and label. They depend on the data seed, the batch, and the sample's number in the
/// batch.
double pixel(const Job& job, std::int64_t batch, std::int64_t sample, std::int64_t element);
std::int32_t label(const Job& job, std::int64_t batch, std::int64_t sample);
/// A whole batch: images (samples, …), labels (samples).
Tensor images_of(const Job& job, std::int64_t batch);
Tensor labels_of(const Job& job, std::int64_t batch);

/// A residual multi-layer perceptron small enough for hundreds of runs.
Job small_residual_job(DType dtype = DType::f32);
/// A wider one: its gradients take several segments and, if reduced together, several threads.
Job wide_residual_job(DType dtype = DType::f32);
/// A small convolutional network with batch norm, on images of 8×8.
Job convolutional_job();
/// A small network with dropout.
Job dropout_job();
/// The job for several models, each with a seed and a rate of its own.
Job with_models(Job job, int models);
/// SGD with momentum and weight decay on one device.
Strategy plain();

/// Both states have the same names, types, and bits; prints which differ.
void expect_same_state(const StateDict& a, const StateDict& b);
/// The same losses and state, bit for bit.
void expect_same_results(const Outcome& a, const Outcome& b);
/// The same results, and `out` used exactly the memory that was planned.
void expect_same_training(const Outcome& expected, const Outcome& out);
/// Trains with a memory budget of a share of the bytes above the state, and expects the same. If the policy
/// has no plan for it, the budget is the smallest one that it names. Returns whether the plan needs less than
/// `kept`, which is without a plan.
bool expect_same_within(const Job& job, Strategy strategy, const Outcome& kept, double share);

}  // namespace tandem::testing
