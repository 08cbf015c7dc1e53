#include "train_options.h"

#include <charconv>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tandem/core/base/error.h>

#include "augment.h"
#include "command_line.h"
#include "config_file.h"
#include "decimal.h"
#include "log.h"
#include "train_checks.h"

namespace tandem::apps {
using namespace engine;
namespace {

// An option that takes a number, or several: 0.1,0.05.
template <class T>
void add_list(CLI::App& app, const std::string& flag, std::vector<T>& values, const std::string& help) {
  app.add_option_function<std::string>(
         flag, [&values](const std::string& text) { values = decimals<T>(text); }, help)
      ->check([](const std::string& text) { return decimals<T>(text), std::string(); })
      ->type_name(std::string(CLI::detail::type_name<T>()) + ",...")
      ->default_str(fmt::format("{}", fmt::join(values, ",")));
}

void add_data(CLI::App& app, TrainOptions& o, const std::vector<std::string>& archs) {
  app.option_defaults()->group("Network and data");
  app.add_option("-a,--arch", o.arch, fmt::format("network: {}", fmt::join(archs, ", ")));
  app.add_option("--dtype", o.dtype, "of weights and arithmetic: f32, f64");
  app.add_option("--data", o.data,
                 "'synthetic' (drawn images), or a directory with CIFAR-10 or CIFAR-100 in binary format");
  app.add_option("--synthetic-train", o.synthetic_train, "training images of --data synthetic");
  app.add_option("--synthetic-test", o.synthetic_test, "test images of --data synthetic");
  app.add_option("--bad-samples", o.bad_samples,
                 "when images of --data cannot be read: stop, or skip:N to leave out up to N of each set");
  app.add_option("--augment", o.augment,
                 fmt::format("what is drawn anew for each image and epoch, joined by commas: {}",
                             fmt::join(augmentations(), ", ")));
  app.add_option("--mixup", o.mixup,
                 "mix each image and its label with another of its batch, in parts drawn from\n"
                 "Beta(alpha, alpha): alpha, such as 0.2 (0: do not)");
  app.add_option("-j,--workers", o.workers,
                 "threads a process that load batches ahead (0: each lane makes its own); they take cores\n"
                 "from what --threads is by default. Losses stay the same at equal --threads");
  app.add_flag("--drop-last,!--no-drop-last", o.drop_last,
               "leave out the images that do not fill an epoch's last batch; else they are a batch of their\n"
               "own size");
  app.add_option("-b,--batch-size", o.batch_size, "images in the global batch: N ranks take 1/N each");
  app.add_option("--epochs", o.epochs,
                 "passes over the training images (0: as many as --steps takes, else 1)");
  app.add_option("--steps", o.steps, "stop after this many batches (0: after --epochs)");
  app.add_option("--patience", o.patience,
                 "stop after this many epochs without a better test accuracy (0: never)");
  app.add_option("--models", o.models, "models trained side by side (0: as many as --lr or --seed list)");
  add_list(app, "--seed", o.seed,
           "seed, or one per model: 1,2. Weights and dropout come from each model's own; the order\n"
           "of samples and the drawn images, the same for all, from the first. With --models N a\n"
           "single seed s means s, s+1, ..., s+N-1");
}

void add_optimizer(CLI::App& app, TrainOptions& o) {
  app.option_defaults()->group("Optimizer");
  add_list(app, "--lr", o.lr, "learning rate, or one per model: 0.1,0.05");
  app.add_option("--sched", o.sched, "learning rate over the run: constant, cosine, linear, step, multistep");
  app.add_option("--min-lr", o.min_lr, "where cosine and linear end");
  add_list(app, "--decay-epochs", o.decay_epochs,
           "step: after every so many epochs; multistep: after these: 80,120");
  app.add_option("--decay-rate", o.decay_rate, "what step and multistep multiply the rate with");
  app.add_option("--warmup-epochs", o.warmup_epochs,
                 "epochs in which the rate rises to --lr, before the schedule");
  app.add_option("--warmup-lr", o.warmup_lr, "where it begins");
  app.add_option("--amp-dtype", o.amp_dtype,
                 "bf16: products and activations in it, weights and sums in f32; or none");
  app.add_option(
      "--loss-scale", o.loss_scale,
      "multiplies the loss before backward by this power of two, which halves when gradients overflow\n"
      "(their batch updates nothing) and doubles after 2000 batches that do not; 0: none");
  app.add_option("--clip-grad", o.clip_norm,
                 "scales the gradients together to this L2 norm where theirs is larger");
  app.add_option("--clip-value", o.clip_value, "keeps each gradient's elements in ± this");
  app.add_option(
      "--on-nan", o.on_nan,
      "a loss or gradient that is not finite: stop, skip the batch's update, or rollback: go back to the\n"
      "last checkpoint, and on without the batch");
  app.add_option("--max-rollbacks", o.max_rollbacks, "how often, before the run ends after all");
  app.add_option("--opt", o.optimizer, "sgd, adam or adamw (decay apart from the gradient)");
  app.add_option("--momentum", o.momentum, "of sgd");
  app.add_flag("--nesterov", o.nesterov, "sgd looks ahead");
  add_list(app, "--betas", o.betas, "of adam and adamw: for the means of gradients and of their squares");
  app.add_flag("--no-bias-decay", o.no_bias_decay, "weight decay leaves out biases and normalizations");
  app.add_option("--wd,--weight-decay", o.weight_decay, "weight decay");
}

void add_parallelism(CLI::App& app, TrainOptions& o) {
  app.option_defaults()->group("Parallelism");
  app.add_option("--parallel", o.parallel,
                 "none, data, pipeline; pipeline with --ranks above 1 is both (default: pipeline with\n"
                 "--stages above 1, data with --ranks above 1 or under mpirun, else none)");
  app.add_option("--ranks", o.ranks,
                 "data-parallel copies (0: as many as mpirun started, else 2 under --parallel data, 1\n"
                 "under pipeline)");
  app.add_option("--stages", o.stages,
                 "pipeline stages (0: as many as mpirun started, else 2, under --parallel pipeline)");
  app.add_option("--microbatches", o.microbatches, "parts of a rank's share of the batch, one after another");
  app.add_option("--schedule", o.schedule,
                 "of the pipeline: plain (one micro-batch at a time), gpipe, 1f1b, or, with two batches or\n"
                 "more in flight, pipedream, dualpipe. These two use weights that are some updates old: at\n"
                 "the same --lr and --momentum they learn worse, so lower them (docs/training.md)");
  app.add_flag("--lockstep", o.lockstep,
               "stages wait for each other after every tick: slower, and simpler to read in a timeline");
  app.add_option("--threads", o.threads, "per compute lane (0: cores / lanes)");
  app.add_option("--transport", o.transport, "of ranks: threads, mpi (default: mpi under mpirun)");
  app.add_option("--link", o.link,
                 "make links between ranks this slow: bandwidth, latency or both: 1GB/s,50us");
}

void add_memory(CLI::App& app, TrainOptions& o) {
  app.option_defaults()->group("Memory");
  app.add_option("--memory-budget", o.memory_budget, "per device, refused when too small: 512MB, 1GiB");
  app.add_option("--plan", o.plan, "JSON file with cuts, fusion groups, swaps, recomputes (docs/plan.md)");
}

void add_output(CLI::App& app, TrainOptions& o) {
  app.option_defaults()->group("Output");
  app.add_option(
      "--output", o.output,
      "run directory: args.json, config.toml, metrics.jsonl (each step), summary.csv (each epoch), summary.json,\n"
      "a file for TensorBoard; with --simulate also profile.json, and program.json for tandem sim.\n"
      "One that holds a run is refused");
  app.add_flag("--force", o.force, "replace the run that --output holds")->configurable(false);
  app.add_option(
         "--trace", o.trace,
         fmt::format(
             "write a timeline, for ui.perfetto.dev, of the first {} steps of each lane: to this file,\n"
             "or without one to trace.json in --output",
             kSpansPerLane))
      ->expected(0, 1)
      ->type_name("[FILE]");
  app.add_option(
      "--tensorboard", o.tensorboard,
      "batches between what --output's event file for TensorBoard has of losses and rates (0: no file)");
  app.add_option("-p,--print-freq", o.print_every,
                 "batches between printed lines, and after ten seconds without one; images/s\n"
                 "is the mean over them");
  app.add_option("--log-level", o.log_level,
                 fmt::format("messages to print, the result apart: {}", fmt::join(log_levels(), ", ")));
}

void add_checkpoints(CLI::App& app, TrainOptions& o) {
  app.option_defaults()->group("Checkpoints (docs/checkpoints.md)");
  app.add_option(
      "--checkpoint-every", o.checkpoint_every,
      "batches between checkpoints, in --output's checkpoints/step-N; one at the end too (0: that alone)");
  app.add_option("--keep", o.keep, "newest checkpoints that stay, at least 2");
  app.add_option("--keep-every", o.keep_every, "those of every so many batches stay as well (0: none)");
  app.add_flag("--keep-best", o.keep_best,
               "evaluate with each checkpoint; the one of the best test accuracy stays as well");
  app.add_option(
      "--resume", o.resume,
      "go on from a checkpoint: its directory, the newest whole one in a directory or run, or auto:\n"
      "--output's newest, if it has one. A .safetensors file gives the first weights alone");
  app.add_flag("-e,--evaluate", o.evaluate,
               "test the weights that --resume names: trains nothing, and writes nothing");
}

void add_simulation(CLI::App& app, TrainOptions& o) {
  app.option_defaults()->group("Simulation");
  app.add_flag("--simulate", o.simulate,
               "predict this run instead of training: measures every kernel, then simulates. Each stage\n"
               "is taken to have --threads cores of its own");
  app.add_option("--profile", o.profile,
                 "with --simulate: costs from the profile.json of an earlier --simulate --output, with the\n"
                 "same network, batch, ranks, stages and micro-batches");
}

}  // namespace

std::int64_t parse_bytes(const std::string& text) {
  constexpr double kMost = 1e15;
  double value = -1;
  const char* const end = text.data() + text.size();
  const std::string unit(std::from_chars(text.data(), end, value).ptr, end);
  const std::vector<std::pair<std::string, double>> units = {{"", 1},
                                                             {"B", 1},
                                                             {"kB", 1e3},
                                                             {"MB", 1e6},
                                                             {"GB", 1e9},
                                                             {"KiB", 1024.0},
                                                             {"MiB", 1024.0 * 1024},
                                                             {"GiB", 1024.0 * 1024 * 1024}};
  for (const auto& [name, factor] : units)
    if (name == unit && value >= 0 && value * factor <= kMost)
      return static_cast<std::int64_t>(value * factor);
  throw Error(
      fmt::format("'{}' is no amount of memory; write bytes, or a number with kB, MB, GB, KiB, MiB or GiB, "
                  "at most {:.0f} GB",
                  text, kMost / 1e9));
}

bool parse(int argc, char** argv, const std::vector<std::string>& archs, TrainOptions& o) {
  CLI::App app{"Trains an image classifier on CIFAR.", "train_cifar"};
  app.option_defaults()->always_capture_default()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  add_data(app, o, archs);
  add_optimizer(app, o);
  add_parallelism(app, o);
  add_memory(app, o);
  add_output(app, o);
  add_checkpoints(app, o);
  add_simulation(app, o);
  add_config(app);
  if (!parse_command_line(app, argc, argv)) return false;
  for (int i = 0; i < argc; ++i) o.command_line += (i ? " " : "") + std::string(argv[i]);
  o.config = to_config(app);
  settle(o, archs, [&](const std::string& flag) { return app.count(flag) > 0; });
  return true;
}

}  // namespace tandem::apps
