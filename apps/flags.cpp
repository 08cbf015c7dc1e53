#include "flags.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <tandem/core/base/error.h>
#include <tandem/datasets/bad_samples.h>
#include <tandem/dist/link.h>
#include <tandem/nn/models/networks.h>
#include <tandem/pipeline/schedules.h>
#include <tandem/plan/loss_scale.h>

#include "augment.h"
#include "log.h"

namespace tandem::apps {
using namespace engine;
namespace {

using O = TrainOptions;
using enum Change;

// A larger number is a typing error, and would overflow, or allocate memory for hours.
constexpr double kMostImages = 1e7, kMostSteps = 1e12, kMostEpochs = 1e6, kMostParts = 1e4,
                 kMostThreads = 1024;

// Allowed values.
const Allowed any;
Allowed at_least(double least) { return {.least = least}; }
Allowed between(double least, double most) { return {.least = least, .most = most}; }
Allowed one_of(std::vector<std::string> texts) { return {.texts = std::move(texts)}; }
Allowed checked(double least, void (*check)(const O&)) { return {.least = least, .check = check}; }
template <class Read> Allowed readable(std::string O::*text, const Read& read) {
  return {.check = [=](const O& o) {
    if (!(o.*text).empty()) read(o.*text);
  }};
}

void check_betas(const O& o) {
  if (o.betas.size() != 2 || std::ranges::any_of(o.betas, [](double beta) { return beta >= 1; }))
    throw Error(fmt::format("there must be two, each in [0, 1), not {}", fmt::join(o.betas, ",")));
}
void check_loss_scale(const O& o) {
  if (o.loss_scale > 0) check(LossScale{.initial = o.loss_scale});
}

// Effects: why there is none. `why` may show the member's value: {}.
const Effect always;
template <class T> Effect needs(T O::*member, const std::string& why) {
  return [=](const O& o) { return o.*member == T{} ? why : ""; };
}
template <class T> Effect not_with(T O::*member, const std::string& why) {
  return [=](const O& o) { return o.*member == T{} ? "" : why; };
}
Effect needs(std::string O::*member, const std::vector<std::string>& values, const std::string& why) {
  return [=](const O& o) {
    return std::ranges::count(values, o.*member) > 0 ? "" : fmt::format(fmt::runtime(why), o.*member);
  };
}
Effect both(const Effect& a, const Effect& b) {
  return [=](const O& o) { return a(o).empty() ? b(o) : a(o); };
}
const Effect needs_drawn_images = needs(&O::data, {"synthetic"}, "with --data {}"),
             needs_curve = needs(&O::sched, {"cosine", "linear"}, "on --sched {}"),
             needs_decay = needs(&O::sched, {"step", "multistep"}, "on --sched {}"),
             needs_sgd = needs(&O::optimizer, {"sgd"}, "on --opt {}"),
             needs_pipeline = needs(&O::parallel, {"pipeline"}, "without --parallel pipeline"),
             needs_checkpoints = needs(&O::checkpoint_every, "without --checkpoint-every"),
             not_simulated = not_with(&O::simulate, "with --simulate, which trains nothing"),
             needs_training =
                 both(not_simulated, not_with(&O::evaluate, "with --evaluate, which trains nothing"));

// cosine and linear end with the run.
Change by_length(const O& o) { return needs_curve(o).empty() ? learning : nothing; }
// Training empties the pipeline for each checkpoint, which matters where batches overlap.
Change by_draining(const O& o) {
  return o.parallel == "pipeline" && (o.schedule == "pipedream" || o.schedule == "dualpipe") ? arithmetic
                                                                                             : nothing;
}

// The table. A row holds: names, member, help; then, down to the last that is not the default in parentheses:
// allowed values (any), what gives it an effect (always), what it changes (learning), what is special,
// its key in args.json.
std::vector<Flag> data_flags() {
  return {
      {"-a,--arch", &O::arch, fmt::format("network: {}", fmt::join(nn::network_names(), ", ")),
       one_of(nn::network_names()), always, network},
      {"--dtype", &O::dtype, "of weights and arithmetic: f32, f64", one_of({"f32", "f64"}), always, network},
      {"--data", &O::data,
       "'synthetic' (drawn images), or a directory with CIFAR-10 or CIFAR-100 in binary format", any, always,
       nothing},
      {"--synthetic-train", &O::synthetic_train, "training images of --data synthetic",
       between(1, kMostImages), needs_drawn_images},
      {"--synthetic-test", &O::synthetic_test, "test images of --data synthetic", between(1, kMostImages),
       needs_drawn_images},
      {"--bad-samples", &O::bad_samples,
       "when images of --data cannot be read: stop, or skip:N to leave out up to N of each set",
       readable(&O::bad_samples, allowed_bad_samples),
       [](const O& o) { return o.data == "synthetic" ? "on drawn images; add --data" : ""; }, nothing},
      {"--augment", &O::augment,
       fmt::format("random changes, drawn for each image and epoch, joined by commas: {}",
                   fmt::join(augmentations(), ", ")),
       readable(&O::augment, check_augmentations)},
      {"--mixup", &O::mixup,
       "mix each image and its label with another of its batch, in parts drawn from\n"
       "Beta(alpha, alpha): alpha, such as 0.2 (0: off)",
       between(0, 4)},
      {"-j,--workers", &O::workers,
       "threads per process that load batches ahead (0: each lane makes its own); the default of\n"
       "--threads leaves them their cores. Losses stay the same at equal --threads",
       between(0, kMostThreads), not_with(&O::simulate, "with --simulate, which measures each step alone"),
       nothing},
      {"--drop-last,!--no-drop-last", &O::drop_last,
       "leave out the images that do not fill an epoch's last batch; else they are a smaller batch", any,
       not_with(&O::simulate, "with --simulate, which predicts whole batches")},
      {"-b,--batch-size", &O::batch_size, "images in the global batch: each of N ranks takes 1/N",
       between(1, kMostImages)},
      {"--epochs", &O::epochs, "passes over the training images (0: as many as --steps takes, else 1)",
       between(0, kMostEpochs),
       not_with(&O::simulate, "with --simulate; --steps says how many batches are predicted"), by_length},
      {"--steps", &O::steps, "stop after this many batches (0: after --epochs)", between(0, kMostSteps),
       always, by_length},
      {"--patience", &O::patience, "stop after this many epochs without a better test accuracy (0: never)",
       between(0, kMostEpochs), needs_training, nothing},
      {"--models", &O::models, "models trained side by side (0: as many as --lr or --seed list)",
       between(0, kMostParts), always, network},
      {"--seed", &O::seed,
       "seed, or one per model: 1,2. Weights and dropout come from each model's own; the order of\n"
       "samples and the drawn images, the same for all models, from the first. With --models N a\n"
       "single seed s means s, s+1, ..., s+N-1"},
  };
}

std::vector<Flag> optimizer_flags() {
  return {
      {"--lr", &O::lr, "learning rate, or one per model: 0.1,0.05", at_least(0)},
      {"--sched", &O::sched, "learning rate over the run: constant, cosine, linear, step, multistep",
       one_of({"constant", "cosine", "linear", "step", "multistep"})},
      {"--min-lr", &O::min_lr, "where cosine and linear end", at_least(0), needs_curve},
      {"--decay-epochs", &O::decay_epochs, "step: after every so many epochs; multistep: after these: 80,120",
       between(1, kMostEpochs), needs_decay},
      {"--decay-rate", &O::decay_rate, "what step and multistep multiply the rate by", at_least(0),
       needs_decay},
      {"--warmup-epochs", &O::warmup_epochs,
       "epochs in which the rate rises to --lr, before --sched takes over", between(0, kMostEpochs)},
      {"--warmup-lr", &O::warmup_lr, "where the rate begins to rise", at_least(0),
       needs(&O::warmup_epochs, "without --warmup-epochs")},
      {"--amp-dtype", &O::amp_dtype,
       "bf16: products and activations in bf16, weights and sums in f32; or none", one_of({"none", "bf16"})},
      {"--loss-scale", &O::loss_scale,
       "multiplies the loss before backward by this power of two, which halves when gradients overflow\n"
       "(their batch updates nothing) and doubles after 2000 batches that do not; 0: none",
       checked(0, check_loss_scale)},
      {"--clip-grad", &O::clip_norm, "scales the gradients together to this L2 norm when theirs is larger",
       at_least(0)},
      {"--clip-value", &O::clip_value, "keeps each gradient's elements in ± this", at_least(0)},
      {"--on-nan", &O::on_nan,
       "at a loss or gradient that is not finite: stop, skip the batch's update, or rollback: go back\n"
       "to the last checkpoint, and on without the batch",
       one_of({"stop", "skip", "rollback"})},
      {"--max-rollbacks", &O::max_rollbacks, "rollbacks, before the run ends after all", at_least(0),
       needs(&O::on_nan, {"rollback"}, "without --on-nan rollback"), nothing},
      {"--opt", &O::optimizer, "sgd, adam or adamw (decay apart from the gradient)",
       one_of({"sgd", "adam", "adamw"}), always, learning, Special::none, "optimizer"},
      {"--momentum", &O::momentum, "of sgd", at_least(0), needs_sgd},
      {"--nesterov", &O::nesterov, "sgd looks ahead", any,
       both(needs_sgd, needs(&O::momentum, "without --momentum"))},
      {"--betas", &O::betas, "of adam and adamw: for the means of gradients and of their squares",
       checked(0, check_betas), needs(&O::optimizer, {"adam", "adamw"}, "on --opt {}")},
      {"--no-bias-decay", &O::no_bias_decay, "weight decay leaves out biases and normalizations", any,
       needs(&O::weight_decay, "without --weight-decay")},
      {"--wd,--weight-decay", &O::weight_decay, "weight decay", at_least(0), always, learning, Special::none,
       "weight_decay"},
  };
}

std::vector<Flag> parallelism_flags() {
  return {
      {"--parallel", &O::parallel,
       "none, data, pipeline; pipeline with --ranks above 1 is both (default: pipeline with\n"
       "--stages above 1, data with --ranks above 1 or under mpirun, else none)",
       one_of({"none", "data", "pipeline"}), always, arithmetic},
      {"--ranks", &O::ranks,
       "data-parallel copies (0: as many as mpirun started, else 2 under --parallel data, 1\n"
       "under pipeline)",
       between(0, kMostParts), always, arithmetic},
      {"--stages", &O::stages,
       "pipeline stages (0: as many as mpirun started, else 2, under --parallel pipeline)",
       between(0, kMostParts), always, arithmetic},
      {"--microbatches", &O::microbatches, "parts of a rank's share of the batch, one after another",
       between(1, kMostParts), always, arithmetic},
      {"--schedule", &O::schedule,
       "of the pipeline: plain (one micro-batch at a time), gpipe, 1f1b, or, with two batches or\n"
       "more in flight, pipedream, dualpipe. These two use weights that are some updates old: at\n"
       "the same --lr and --momentum they learn worse, so lower them (README)",
       readable(&O::schedule, schedule_from_name), needs_pipeline, arithmetic},
      {"--lockstep", &O::lockstep,
       "stages wait for each other after every tick: slower, and simpler to read in a timeline", any,
       needs_pipeline, nothing},
      {"--threads", &O::threads, "per compute lane (0: cores / lanes)", between(0, kMostThreads), always,
       arithmetic},
      {"--transport", &O::transport, "of ranks: threads, mpi (default: mpi under mpirun)",
       one_of({"threads", "mpi"}), always, nothing},
      {"--link", &O::link, "make links between ranks this slow: bandwidth, latency or both: 1GB/s,50us",
       readable(&O::link, parse_link),
       [](const O& o) {
         return o.ranks * o.stages > 1 ? "" : "on one rank; add --parallel data or pipeline";
       },
       nothing},
  };
}

std::vector<Flag> memory_flags() {
  return {
      {"--memory-budget", &O::memory_budget,
       "per device, refused when too small: 64K, 512MB, 1.5GiB (K and kB are 1000 bytes, KiB 1024)",
       readable(&O::memory_budget, parse_bytes), always, nothing},
      {"--plan", &O::plan, "JSON file with cuts, fusion groups, swaps, recomputes (docs/plan.md)", any,
       always, arithmetic},
  };
}

std::vector<Flag> output_flags() {
  return {
      {"--output", &O::output,
       "run directory: args.json, config.toml, metrics.jsonl (each step), summary.csv (each epoch),\n"
       "summary.json, a file for TensorBoard; with --simulate also profile.json, and program.json\n"
       "for tandem sim. A directory that holds a run is refused",
       any, always, unrecorded},
      {"--force", &O::force, "replace the run that --output holds", any,
       both(needs(&O::output, "without --output, whose files it replaces"),
            [](const O& o) {
              return o.resume != "auto" ? "" : "with --resume auto, which continues --output's run";
            }),
       unrecorded, Special::not_in_config},
      {"--trace", &O::trace,
       fmt::format("write a timeline, for ui.perfetto.dev, of the first {} steps of each lane: to this\n"
                   "file, or without one to trace.json in --output",
                   kSpansPerLane),
       any, not_with(&O::evaluate, "with --evaluate, which prints its result alone"), nothing,
       Special::value_is_optional},
      {"--tensorboard", &O::tensorboard,
       "batches between the losses and rates in --output's event file for TensorBoard (0: no file)",
       at_least(0), both(needs(&O::output, "without --output, where its file is"), needs_training), nothing},
      {"-p,--print-freq", &O::print_every,
       "batches between printed lines; a line is also printed after ten seconds without one. images/s\n"
       "is the mean since the line before",
       at_least(1), not_with(&O::simulate, "with --simulate, which prints its result alone"), unrecorded},
      {"--log-level", &O::log_level,
       fmt::format("messages to print, apart from the result: {}", fmt::join(log_levels(), ", ")),
       one_of(log_levels()), always, unrecorded},
  };
}

std::vector<Flag> checkpoint_flags() {
  return {
      {"--checkpoint-every", &O::checkpoint_every,
       "batches between checkpoints, in --output's checkpoints/step-N; one at the end too (0: only that)",
       between(0, kMostSteps),
       both(not_simulated, needs(&O::output, "without --output, where checkpoints are kept")), by_draining},
      {"--keep", &O::keep, "newest checkpoints to keep, at least 2", at_least(2), needs_checkpoints, nothing},
      {"--keep-every", &O::keep_every, "keep those of every so many batches as well (0: none)",
       between(0, kMostSteps), needs_checkpoints, nothing},
      {"--keep-best", &O::keep_best,
       "evaluate with each checkpoint, and keep the one with the best test accuracy as well", any,
       needs_checkpoints, nothing},
      {"--resume", &O::resume,
       "continue from a checkpoint: its directory, the newest whole one in a directory or run, or auto:\n"
       "--output's newest, if it has one. A .safetensors file gives only the first weights",
       any, not_simulated, nothing, Special::not_in_config_toml},
      {"-e,--evaluate", &O::evaluate,
       "test the weights that --resume names: trains nothing, and writes nothing", any,
       both(not_simulated, needs(&O::resume, "without --resume, which names the weights")), nothing},
  };
}

std::vector<Flag> simulation_flags() {
  return {
      {"--simulate", &O::simulate,
       "predict this run instead of training: measures every kernel, then simulates. Each stage is\n"
       "taken to have --threads cores of its own",
       any, always, nothing},
      {"--profile", &O::profile,
       "with --simulate: costs from the profile.json of an earlier --simulate --output, with the\n"
       "same network, batch, ranks, stages and micro-batches",
       any, needs(&O::simulate, "on training; add --simulate, or leave it out"), nothing},
  };
}

}  // namespace

const std::vector<Flag>& flags() {
  static const std::vector<Flag> all = [] {
    std::vector<Flag> table;
    const auto add = [&](const std::string& group, std::vector<Flag> rows) {
      for (Flag& flag : rows) {
        flag.group = group;
        flag.name = flag.names.substr(flag.names.find("--") + 2);
        flag.name = flag.name.substr(0, flag.name.find(','));
        if (flag.key.empty()) std::ranges::replace_copy(flag.name, std::back_inserter(flag.key), '-', '_');
        table.push_back(std::move(flag));
      }
    };
    add("Network and data", data_flags());
    add("Optimizer", optimizer_flags());
    add("Parallelism", parallelism_flags());
    add("Memory", memory_flags());
    add("Output", output_flags());
    add("Checkpoints (docs/checkpoints.md)", checkpoint_flags());
    add("Simulation", simulation_flags());
    return table;
  }();
  return all;
}

nlohmann::json value_of(const Flag& flag, const TrainOptions& options) {
  return std::visit([&](auto member) { return nlohmann::json(options.*member); }, flag.member);
}

Change change_by(const Flag& flag, const TrainOptions& options) {
  const auto* const fixed = std::get_if<Change>(&flag.changes);
  return fixed ? *fixed : std::get<1>(flag.changes)(options);
}

}  // namespace tandem::apps
