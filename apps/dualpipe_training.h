#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include <tandem/nn/module.h>
#include <tandem/plan/optimizer.h>
#include <tandem/train/trainer_options.h>

#include "dualpipe_run.h"

namespace tandem::apps {

/// One training of a network: what is trained, and how.
struct DualPipeJob {
  std::unique_ptr<nn::Module> network;
  std::string schedule;          ///< "plain": one device
  bool stashes_forward = false;  ///< B uses the weights of its F, also those that F predicted
  int stages = 1;
  double lr = 0;
  SgdRule rule = SgdRule::momentum;
  std::int64_t batch_size = 0, iterations = 0;
  std::uint64_t seed = 1;  ///< of the first weights and of the order of the samples
  bool lockstep = false;
  std::vector<std::string> cuts{};  ///< as in Strategy
  bool measure_busy = false;        ///< of a lockstep run
  std::vector<int> measure_prediction{};
};

/// A point of a learning curve on the validation samples.
struct Validation {
  std::int64_t iterations = 0;  ///< before it
  double loss = 0, accuracy = 0;
};

/// What a training did. If it diverged, it ends before the iterations that were asked for.
struct LearningCurve {
  int classes = 0;           ///< of the samples
  std::vector<double> loss;  ///< by iteration
  std::vector<Validation> validations;
  std::vector<std::vector<PredictionError>> prediction;  ///< by iteration, as DualPipeJob asks for
  std::vector<double> stage_weights;                     ///< number of trained weights, by stage
  double busy = 0;     ///< while all stages have batches: the share of their time in which they compute
  double step_ms = 0;  ///< median over the iterations
  bool diverged = false;
};

/// Returns the best validation accuracy; that of guessing if the network diverged before it was validated.
double best_accuracy(const LearningCurve& curve);

/// Trains with SGD and momentum 0.9 on threads, and validates every kValidateEvery iterations and at the end,
/// if there are validation samples. Throws Error as training does, but not if the loss or the weights are no
/// longer finite.
LearningCurve train(DualPipeJob job, const DualPipeSamples& samples);

}  // namespace tandem::apps
