#pragma once
#include <map>
#include <memory>
#include <string>

#include <tandem/core/graph/graph.h>
#include <tandem/core/graph/tensor.h>
#include <tandem/dist/mpi_comm.h>
#include <tandem/nn/module.h>
#include <tandem/plan/strategy.h>
#include <tandem/train/lr_schedule.h>
#include <tandem/train/trainer.h>

#include "train_options.h"

namespace tandem::apps {
using namespace engine;

/// Who shares the cores that this process may use.
struct CoreShares {
  int available = 1;
  int lanes = 1;    ///< that compute
  int loaders = 0;  ///< threads
  int threads = 1;  ///< of a lane
};
CoreShares share_cores(const TrainOptions& options, const MpiSession* mpi);

/// What options say, in the library's terms. `forward` is the network's graph for one sample.
Strategy strategy_of(const TrainOptions& options, const Graph& forward, int threads);

/// Of a model whose rate begins at `lr`; what is given in epochs becomes batches.
LrSchedule lr_schedule_of(const TrainOptions& options, const RunLength& length, double lr);

/// The network, of --dtype, without weights.
std::unique_ptr<nn::Module> network_of(const TrainOptions& options, int classes);

/// All models' first weights: drawn, or the file's.
StateDict initial_state(const TrainOptions& options, int classes, const std::string& weights_file = "");

/// Says what swaps and recomputes do to the planned peak, since those that lower nothing only cost time.
void say_plan(const Graph& forward, const Strategy& strategy);

}  // namespace tandem::apps
