#pragma once
#include <memory>
#include <string>

#include <tandem/dist/mpi_comm.h>
#include <tandem/train/trainer.h>

#include "train_options.h"

namespace tandem::apps {
using namespace engine;

/// The lanes and threads of all ranks that share the cores of this process.
struct CoreShares {
  int available = 1;     ///< cores that they share
  int lanes = 1;         ///< compute lanes
  int loaders = 0;       ///< loading threads
  int threads = 1;       ///< threads per lane, the same on all ranks
  int rank = 1;          ///< cores of a rank, the same on all ranks
  int out_of_reach = 0;  ///< cores of this machine that the binding of mpirun leaves idle
};
/// If ranks are processes, all of them must call it.
CoreShares share_cores(const TrainOptions& options, MpiSession* mpi);

/// Returns the Strategy that the options describe, without the groups of `group_gradients`. `forward` is the
/// network's graph for one sample.
Strategy strategy_of(const TrainOptions& options, const Graph& forward, int threads);

/// Groups gradients as `--allreduce` asks, if that policy plans from bytes alone. `strategy` has its cuts.
void group_gradients(const TrainOptions& options, const Graph& forward, Strategy& strategy);

/// Returns the learning-rate schedule of a model with the base rate `lr`; options in epochs become batches.
LrSchedule lr_schedule_of(const TrainOptions& options, const RunLength& length, double lr);

/// Returns the network with the type --dtype and --dropout, without weights.
std::unique_ptr<nn::Module> network_of(const TrainOptions& options, int classes);

/// Fills a network's weights: drawn from the seed, times --init-gain.
void draw_weights(nn::Module& network, const TrainOptions& options);

/// Returns the loss and accuracy that a model is trained for.
Objective objective_of(const TrainOptions& options);

/// Returns what a model that trains beside others has of its own; `options` are of this model.
ModelOptions model_options_of(const TrainOptions& options);

/// Returns the drawn weights of all models.
StateDict initial_state(const TrainOptions& options, int classes);

/// Logs how swaps and recomputes change the planned peak; if they do not lower it, they only cost time.
void say_plan(const Graph& forward, const Strategy& strategy);

}  // namespace tandem::apps
