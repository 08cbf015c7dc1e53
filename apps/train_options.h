#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tandem::apps {
/// How many executions of each lane a --trace holds.
inline constexpr std::size_t kSpansPerLane = 200'000;

/// What the command line of a training program says, with everything left open filled in.
struct TrainOptions {
  std::string arch = "mlp-residual";
  std::string data = "synthetic";
  std::int64_t synthetic_train = 10'000, synthetic_test = 2'000;
  std::string bad_samples = "stop";  ///< stop, or skip:N
  std::string augment = "none";      ///< none, or transforms joined by commas
  double mixup = 0;                  ///< alpha; 0: none
  bool drop_last = false;
  int workers = 0;         ///< threads of this process that load batches ahead
  int epochs = 0;          ///< 0: as many as `steps` takes
  std::int64_t steps = 0;  ///< 0: by epochs; with both, whichever ends first
  std::int64_t batch_size = 128;
  std::vector<double> lr = {0.05};
  std::string sched = "constant";
  double min_lr = 0, warmup_lr = 0, decay_rate = 0.1;
  int warmup_epochs = 0;
  std::vector<int> decay_epochs;
  std::string optimizer = "sgd";
  double momentum = 0.9, weight_decay = 0;
  bool nesterov = false, no_bias_decay = false;
  double clip_norm = 0, clip_value = 0, loss_scale = 0;  ///< 0: none
  std::string on_nan = "stop";
  int max_rollbacks = 3;
  std::string amp_dtype = "none";
  std::vector<double> betas = {0.9, 0.999};
  std::vector<std::uint64_t> seed = {0};
  int threads = 0;       ///< per compute lane; 0: the cores divided among the lanes of this machine
  std::string parallel;  ///< none, data, pipeline; empty: none, or data under mpirun
  int ranks = 0, stages = 0, microbatches = 1, models = 0;
  std::string schedule = "1f1b";
  bool lockstep = false;
  std::string memory_budget;
  std::string transport;  ///< threads, mpi; empty: mpi under mpirun
  int tensorboard = 10;   ///< batches between scalars for TensorBoard; 0: none
  std::string link, trace, profile, plan, output;
  std::int64_t checkpoint_every = 0;  ///< batches; 0: never
  int keep = 2;                       ///< newest checkpoints
  std::int64_t keep_every = 0;        ///< and those of every so many batches; 0: none
  bool keep_best = false;             ///< and the one of the best test accuracy
  std::string resume;                 ///< a checkpoint, what holds some, a file of weights, or auto
  bool evaluate = false;              ///< only
  std::string dtype = "f32";
  int patience = 0;  ///< epochs without a better accuracy; 0: without end
  bool simulate = false, force = false;
  int print_every = 50;
  std::string log_level = "info";
  std::string command_line, config;  ///< as it was typed, and as a file for --config
};

/// Parses, completes and checks (train_checks.h). Returns false when there is nothing to run (--help,
/// --version), after printing. Throws Error naming the flag, what was given and what is accepted.
bool parse(int argc, char** argv, const std::vector<std::string>& archs, TrainOptions& options);

/// "512MB", "1.5GiB", "1000000" in bytes. Throws Error listing the forms.
std::int64_t parse_bytes(const std::string& text);

}  // namespace tandem::apps
