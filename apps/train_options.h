#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
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
  std::int64_t data_seed = -1, synthetic_seed = -1;  ///< −1: the first of `seed`
  std::vector<double> lr;
  std::string sched = "constant";
  double min_lr = 0, warmup_lr = 0, decay_rate = 0.1;
  int warmup_epochs = 0;
  std::vector<int> decay_epochs;
  std::string optimizer = "sgd", amp_dtype = "none", on_nan = "stop";
  double momentum = 0.9, weight_decay = 0, clip_norm = 0, clip_value = 0, loss_scale = 0;
  std::vector<double> betas = {0.9, 0.999};
  bool nesterov = false, no_bias_decay = false;
  double dropout = -1, init_gain = 1, label_smoothing = 0;  ///< dropout −1: the network's own
  std::string sweep, prune = "none";
  int max_rollbacks = 3;
  std::string parallel, schedule = "1f1b", spectrain_target = "paper", sgd_rule = "momentum",
                        clip_scope = "model", transport, allreduce = "auto", collective = "auto", link,
                        memory_budget, memory_plan, host_budget, copy_link, plan;
  std::vector<int> comm_threads, measure_prediction, arrays, turns;
  int array_lanes = 1;
  bool array_ring = false;
  int ranks = 0, stages = 0, chunks = 1, microbatches = 0, threads = 0;
  /// Of a pipeline, and the one with the last stage; settled when the command line has been parsed.
  int devices = 1, last_device = 0;
  double deadline = 600;
  bool lockstep = false;
  std::string output, trace, log_level = "info";
  int tensorboard = 10, print_every = 50;
  std::int64_t checkpoint_every = 0, keep_every = 0, trace_steps = 0;
  int keep = 2;
  std::string resume, profile;
  bool keep_best = false, evaluate = false, simulate = false, force = false, dump_profile = false,
       explain = false;
  std::string command_line, config;  ///< as typed, and as a file for --config
  std::vector<std::string> given;    ///< the flags on the command line or in --config's file
  /// Of one of several runs of a sweep (sweep.h): its directory in --output, such as batch-size-64, and what
  /// all runs are: batch-size 64, 128.
  struct Part {
    std::string name, all;
  } part;
  /// Of each model of a --sweep, the flags that it has of its own, and their values (sweep.h).
  std::vector<std::vector<std::pair<std::string, std::string>>> swept;
};

/// Return the seed of the samples' order and augmentation, and that of drawn images.
inline std::uint64_t data_seed(const TrainOptions& o) {
  return o.data_seed < 0 ? o.seed[0] : static_cast<std::uint64_t>(o.data_seed);
}
inline std::uint64_t synthetic_seed(const TrainOptions& o) {
  return o.synthetic_seed < 0 ? o.seed[0] : static_cast<std::uint64_t>(o.synthetic_seed);
}

/// Leaves out the seeds that are the first of --seed, so that equal runs have equal options.
inline void settle_seeds(TrainOptions& o) {
  for (std::int64_t* seed : {&o.data_seed, &o.synthetic_seed})
    if (*seed >= 0 && static_cast<std::uint64_t>(*seed) == o.seed[0]) *seed = -1;
}

/// The --lr of a network if none is given: one with which it learns. It is for batches of 128 images, and
/// less in proportion for smaller ones.
double default_rate(const std::string& arch, const std::string& optimizer, std::int64_t batch_size = 128);

/// Parses the command line, fills in what it leaves open, such as the number of ranks, and checks everything.
/// Returns the runs that it asks for, in order: one, or several of a sweep over batch sizes; or none, because
/// --help or --version was printed. Throws Error naming the flag, what was given and what is accepted: for
/// values out of range, flags that do not fit together, and flags without an effect.
std::vector<TrainOptions> parse(int argc, char** argv);

}  // namespace tandem::apps
