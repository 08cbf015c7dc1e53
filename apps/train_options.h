#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tandem::apps {
/// The most executions per lane that a --trace holds.
inline constexpr std::size_t kSpansPerLane = 200'000;

/// The values of train_cifar's flags, which flags.cpp describes.
struct TrainOptions {
  std::string arch = "mlp-residual", dtype = "f32";
  std::string data = "synthetic", bad_samples = "stop", augment = "none";
  std::int64_t synthetic_train = 10'000, synthetic_test = 2'000;
  double mixup = 0;
  bool drop_last = false;
  int workers = 0, epochs = 0, patience = 0, models = 0;
  std::int64_t steps = 0, batch_size = 128;
  std::vector<std::uint64_t> seed = {0};
  std::vector<double> lr;
  std::string sched = "constant";
  double min_lr = 0, warmup_lr = 0, decay_rate = 0.1;
  int warmup_epochs = 0;
  std::vector<int> decay_epochs;
  std::string optimizer = "sgd", amp_dtype = "none", on_nan = "stop";
  double momentum = 0.9, weight_decay = 0, clip_norm = 0, clip_value = 0, loss_scale = 0;
  std::vector<double> betas = {0.9, 0.999};
  bool nesterov = false, no_bias_decay = false;
  int max_rollbacks = 3;
  std::string parallel, schedule = "1f1b", spectrain_target = "paper", sgd_rule = "momentum",
                        clip_scope = "model", transport, allreduce = "auto", collective = "auto", link,
                        memory_budget, memory_plan, copy_link, plan;
  std::vector<int> comm_threads, measure_prediction, arrays;
  int array_lanes = 1;
  bool array_ring = false;
  int ranks = 0, stages = 0, chunks = 1, microbatches = 0, threads = 0;
  /// Of a pipeline, and the one with the last stage; settled when the command line has been parsed.
  int devices = 1, last_device = 0;
  double deadline = 600;
  bool lockstep = false;
  std::string output, trace, log_level = "info";
  int tensorboard = 10, print_every = 50;
  std::int64_t checkpoint_every = 0, keep_every = 0;
  int keep = 2;
  std::string resume, profile;
  bool keep_best = false, evaluate = false, simulate = false, force = false, dump_profile = false,
       explain = false;
  std::string command_line, config;  ///< as typed, and as a file for --config
};

/// The --lr of a network if none is given: one with which it learns. It is for batches of 128 images, and
/// less in proportion for smaller ones.
double default_rate(const std::string& arch, const std::string& optimizer, std::int64_t batch_size = 128);

/// Parses the command line, fills in what it leaves open, such as the number of ranks, and checks everything.
/// Returns false if there is nothing to run, because --help or --version was printed. Throws Error naming the
/// flag, what was given and what is accepted: for values out of range, flags that do not fit together, and
/// flags without an effect.
bool parse(int argc, char** argv, TrainOptions& options);

}  // namespace tandem::apps
