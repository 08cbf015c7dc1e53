#include "flags.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <tandem/core/base/contains.h>
#include <tandem/core/base/named.h>
#include <tandem/engine.h>
#include <tandem/memory/memory_policies.h>

#include "augment.h"
#include "flag_rules.h"
#include "log.h"
#include "memory_report.h"
#include "parse_bytes.h"
#include "pipeline_options.h"
#include "sweep.h"
#include "typed_schedule.h"

namespace tandem::apps {
using namespace engine;
namespace {

using O = TrainOptions;
using enum Change;

// Larger numbers are typing errors: they would overflow, or allocate memory for hours.
constexpr double kMostImages = 1e7, kMostSteps = 1e12, kMostEpochs = 1e6, kMostParts = 1e4,
                 kMostThreads = 1024, kMostWorkers = 128, kMostMeasured = 100, kMostSeed = 9e15;

// The table. A row holds names, member and help, then these values up to the last one that is not the default
// (in parentheses): allowed values (any), when it has an effect (always), what it changes (learning), what is
// special (none), its key in args.json.
std::vector<Flag> data_flags() {
  return {
      {"-a,--arch", &O::arch, fmt::format("network: {}", fmt::join(nn::network_names(), ", ")),
       one_of(nn::network_names()), always, network},
      {"--dtype", &O::dtype, "type of weights and arithmetic: f32, f64", one_of({"f32", "f64"}), always,
       network},
      {"--data", &O::data,
       "'synthetic' (drawn images), or a directory with CIFAR-10 or CIFAR-100 in binary format", any, always,
       nothing},
      {"--synthetic-train", &O::synthetic_train, "number of training images of --data synthetic",
       between(1, kMostImages), needs_drawn_images},
      {"--synthetic-test", &O::synthetic_test, "number of test images of --data synthetic",
       between(1, kMostImages), needs_drawn_images},
      {"--bad-samples", &O::bad_samples,
       "if images of --data cannot be read: stop, or skip:N to leave out up to N of each set",
       readable(&O::bad_samples, allowed_bad_samples),
       [](const O& o) { return o.data == "synthetic" ? "on drawn images; add --data" : ""; }, nothing},
      {"--augment", &O::augment,
       fmt::format("random changes, drawn for each image and epoch, joined by commas: {}",
                   fmt::join(augmentations(), ", ")),
       readable(&O::augment, check_augmentations)},
      {"--mixup", &O::mixup,
       "alpha of mixup, such as 0.2 (0: off): mixes each image and its label with another of its batch, "
       "in proportions drawn from Beta(alpha, alpha)",
       between(0, 4)},
      {"-j,--workers", &O::workers,
       "threads per process that load batches ahead (0: each lane loads its own). By default, --threads "
       "leaves cores free for them. They change no loss if --threads is the same",
       between(0, kMostWorkers), not_with(&O::simulate, "with --simulate, which measures each step alone"),
       nothing},
      {"--drop-last,!--no-drop-last", &O::drop_last,
       "leave out the images that do not fill an epoch's last batch; otherwise they are a smaller batch", any,
       not_with(&O::simulate, "with --simulate, which predicts whole batches")},
      {"-b,--batch-size", &O::batch_size, "images in the global batch: each of N ranks takes 1/N",
       between(1, kMostImages)},
      {"--epochs", &O::epochs, "passes over the training images (0: as many as --steps needs, or 1)",
       between(0, kMostEpochs),
       not_with(&O::simulate, "with --simulate; --steps sets how many batches are predicted"), by_length},
      {"--steps", &O::steps, "stop after this many batches (0: after --epochs)", between(0, kMostSteps),
       always, by_length},
      {"--patience", &O::patience, "stop after this many epochs without a better test accuracy (0: never)",
       between(0, kMostEpochs),
       both(needs_training,
            not_with(&O::sweep, "on a model of --sweep alone: it ends all together; use --prune")),
       nothing},
      {"--models", &O::models, "models trained side by side (0: as many as --lr or --seed list)",
       between(0, kMostParts), always, network},
      {"--arrays",
       &O::arrays,
       "models in arrays of these sizes: 2,2,1. An array is computed together; arrays take turns, or form a "
       "pair with --array-ring. Default: an array for each core, of large models one for each model, or as "
       "--memory-budget needs",
       {.least = 1, .most = kMostParts, .check = check_arrays},
       always,
       nothing},
      {"--array-lanes", &O::array_lanes, "arrays that are computed at once, each by its part of the cores",
       between(1, kMostThreads), needs(&O::arrays, "without --arrays"), nothing},
      {"--array-ring", &O::array_ring,
       "compute the backward of each array beside the forward of the next (of two arrays: μ-TWO's pair)", any,
       needs(&O::arrays, "without --arrays"), nothing},
      {"--turns",
       &O::turns,
       "how many models train at once: 4,4 trains four for an epoch, then the other four, whose states wait in "
       "a copy. Default: all, or as --memory-budget needs",
       {.least = 1, .most = kMostParts, .check = check_turns},
       both(needs_training, not_with(&O::simulate, "with --simulate, which measures one turn")),
       nothing},
      {"--seed", &O::seed,
       "seed, or one per model: 1,2. Each model takes its weights and dropout from its own seed. The "
       "first seed decides the order of samples and the drawn images, the same for all models. With "
       "--models N, a single seed s means s, s+1, ..., s+N-1; with --sweep all models have it"},
      {"--data-seed", &O::data_seed, "seed of the order of samples and of --augment (-1: the first --seed)",
       between(-1, kMostSeed)},
      {"--synthetic-seed", &O::synthetic_seed,
       "seed of the images that --data synthetic draws (-1: the first --seed)", between(-1, kMostSeed),
       needs_drawn_images},
      {"--sweep", &O::sweep,
       fmt::format(
           "train models side by side that differ in these flags: 'lr=0.1,0.05;wd=1e-4,5e-4' trains each rate "
           "with each weight decay, and with --models 8 each pair with two seeds; 'lr~log(1e-4,1e-1)' draws "
           "--models rates. Each model gets a directory "
           "model-K in --output, and the end ranks them, with the command that trains each alone. The flags: "
           "{}; and batch-size, whose values are runs of their own, one after the other, each in a directory "
           "batch-size-N in --output",
           fmt::join(swept_flags(), ", ")),
       any},
      {"--prune", &O::prune,
       "median: after each epoch, a model stops whose best test accuracy is below the median of the other "
       "models' means so far; or none",
       one_of({"none", "median"}),
       both(needs_training, [](const O& o) { return o.models > 1 ? "" : "on one model"; })},
  };
}

std::vector<Flag> optimizer_flags() {
  return {
      {"--lr", &O::lr,
       fmt::format(
           "learning rate, or one per model: 0.1,0.05; by default {} (vgg16: {}, snn: {}), with adam {} "
           "(vgg16, snn: {}), and in proportion less for batches below 128",
           default_rate("", "sgd"), default_rate("vgg16", "sgd"), default_rate("snn", "sgd"),
           default_rate("", "adam"), default_rate("snn", "adam")),
       at_least(0)},
      {"--sched", &O::sched, "learning-rate schedule: constant, cosine, linear, step, multistep",
       one_of({"constant", "cosine", "linear", "step", "multistep"})},
      {"--min-lr", &O::min_lr, "last rate of cosine and linear", at_least(0), needs_curve},
      {"--decay-epochs", &O::decay_epochs, "for step: interval in epochs; for multistep: the epochs: 80,120",
       between(1, kMostEpochs), needs_decay},
      {"--decay-rate", &O::decay_rate, "factor by which step and multistep multiply the rate", at_least(0),
       needs_decay},
      {"--warmup-epochs", &O::warmup_epochs, "epochs in which the rate rises to --lr, before --sched begins",
       between(0, kMostEpochs)},
      {"--warmup-lr", &O::warmup_lr, "first rate of the warm-up", at_least(0),
       needs(&O::warmup_epochs, "without --warmup-epochs")},
      {"--amp-dtype", &O::amp_dtype,
       "bf16: products and activations in bf16, weights and sums in f32; or none", one_of({"none", "bf16"})},
      {"--loss-scale", &O::loss_scale,
       "first loss scale, a power of two that multiplies the loss before backward (0: none). It halves "
       "when gradients overflow (their batch updates nothing), and doubles after 2000 batches in a row "
       "without overflow",
       checked(0, check_loss_scale)},
      {"--dropout", &O::dropout, "probability of the network's dropout layers (-1: the network's own)",
       between(-1, 0.999)},
      {"--label-smoothing", &O::label_smoothing, "part of each label that is spread evenly over all classes",
       between(0, 1)},
      {"--init-gain", &O::init_gain,
       "factor of the first weights of matrices and convolutions, as they are drawn", at_least(0)},
      {"--clip-grad", &O::clip_norm,
       "largest L2 norm of all gradients together; larger ones are scaled down to it (0: off)", at_least(0)},
      {"--clip-scope", &O::clip_scope,
       "whose gradients --clip-grad scales together: model, or stage (each pipeline stage by itself; for schedules "
       "whose stages update at different times)",
       one_of({"model", "stage"}), both(needs(&O::clip_norm, "without --clip-grad"), needs_pipeline)},
      {"--clip-value", &O::clip_value, "largest absolute value of a gradient's elements (0: off)",
       at_least(0)},
      {"--on-nan", &O::on_nan,
       "if a loss or gradient is not finite: stop, skip (the batch's update), rollback (go back to the last "
       "checkpoint, and continue without the batch), or mask (of several models: this one stays as it is, and "
       "the others go on; the default of several, unless there is a --loss-scale)",
       one_of({"stop", "skip", "rollback", "mask"})},
      {"--max-rollbacks", &O::max_rollbacks, "number of rollbacks before the run ends", at_least(0),
       needs(&O::on_nan, {"rollback"}, "without --on-nan rollback"), nothing},
      {"--opt", &O::optimizer, "sgd, adam, or adamw (adam with weight decay apart from the gradient)",
       one_of({"sgd", "adam", "adamw"}), always, learning, Special::none, "optimizer"},
      {"--momentum", &O::momentum, "momentum of sgd", between(0, 1), needs_sgd},
      {"--sgd-rule", &O::sgd_rule,
       "what --opt sgd does with the momentum M: momentum (v = M*v + g, w -= lr*v), ema (v = M*v + (1-M)*g, "
       "w -= lr*v), raw+ema (the same v, w -= lr*g)",
       one_of({"momentum", "ema", "raw+ema"}), needs_sgd},
      {"--nesterov", &O::nesterov, "use Nesterov's momentum in sgd", any,
       both(needs_sgd, both(needs(&O::momentum, "without --momentum"),
                            needs(&O::sgd_rule, {"momentum"}, "with --sgd-rule {}")))},
      {"--betas", &O::betas, "decay rates of adam and adamw, for the means of gradients and of their squares",
       checked(0, check_betas), needs(&O::optimizer, {"adam", "adamw"}, "with --opt {}")},
      {"--no-bias-decay", &O::no_bias_decay, "no weight decay for biases and normalizations", any,
       needs(&O::weight_decay, "without --weight-decay")},
      {"--wd,--weight-decay", &O::weight_decay, "weight decay", at_least(0), always, learning, Special::none,
       "weight_decay"},
  };
}

std::vector<Flag> parallelism_flags() {
  const Effect reduces = [](const O& o) {
    return o.ranks > 1 ? "" : "on one data-parallel rank, which reduces nothing";
  };
  return {
      {"--parallel", &O::parallel,
       "none, data, pipeline; pipeline with --ranks above 1 is both (default: pipeline if --stages is "
       "above 1, data if --ranks is above 1 or under mpirun, otherwise none)",
       one_of({"none", "data", "pipeline"}), always, arithmetic},
      {"--ranks", &O::ranks,
       "data-parallel copies (0: as many as mpirun started, otherwise 2 with --parallel data, 1 with "
       "pipeline)",
       between(0, kMostParts), always, arithmetic},
      {"--stages", &O::stages,
       "pipeline stages (0, with --parallel pipeline: --chunks on each process of mpirun, otherwise on each "
       "of 2 devices)",
       between(0, kMostParts), always, arithmetic},
      {"--microbatches", &O::microbatches,
       "parts of a rank's share of the batch, computed one after another (0: those of a schedule's file, "
       "otherwise 1)",
       between(0, kMostParts), always, arithmetic},
      {"--schedule", &O::schedule,
       fmt::format("pipeline schedule: {}, "
                   "or FILE.json. With {}, several batches are in "
                   "flight, and weights can be some updates old: they learn worse with the same --lr and "
                   "--momentum, so lower these (docs/pipelines.md). -async after such a name says that it "
                   "runs freely, as it does without --lockstep",
                   fmt::join(schedule_names(), ", "),
                   fmt::join(schedule_names(&ScheduleFunction::overlaps_batches), ", ")),
       readable(&O::schedule, typed_schedule), needs_pipeline, arithmetic},
      {"--chunks", &O::chunks,
       fmt::format("stages of each device, with --schedule {}: of N devices, stage c lies on device c mod N",
                   fmt::join(schedule_names(&ScheduleFunction::takes_chunks), ", ")),
       between(1, kMostParts), both(needs_pipeline, needs_schedule_that(&ScheduleFunction::takes_chunks)),
       arithmetic},
      {"--spectrain-target", &O::spectrain_target,
       "weights that --schedule spectrain predicts: paper (those when the batch completes), effective (the "
       "same, but only updates that happen, at the start of a run), serial (those of training on one device)",
       one_of({"paper", "effective", "serial"}),
       both(needs_pipeline, needs_schedule_that(&ScheduleFunction::takes_target)), arithmetic},
      {"--lockstep", &O::lockstep,
       "all stages wait for each other after every tick: slower, but simpler to read in a timeline", any,
       both(needs_pipeline, needs_schedule_name), nothing},
      {"--threads", &O::threads, "threads per compute lane (0: cores / lanes, or TANDEM_THREADS / lanes)", between(0, kMostThreads),
       always, arithmetic},
      {"--transport", &O::transport,
       "how ranks run and communicate: threads, mpi (default: mpi under mpirun, otherwise threads)",
       one_of({"threads", "mpi"}), always, nothing},
      {"--deadline", &O::deadline,
       "seconds that ranks wait for each other, at the start and in every collective and transfer; then the job "
       "ends and says which rank has not come, and what the lanes of the others are in. It must be longer than a "
       "step. Between steps, a rank that still runs may take longer, for example for a checkpoint",
       between(1, 86'400),
       [](const O& o) {
         return o.transport == "mpi" || o.ranks * o.devices > 1 ? ""
                                                                : "on one rank, which waits for no other";
       },
       nothing},
      {"--allreduce", &O::allreduce,
       fmt::format(
           "how ranks reduce gradients beside backward: se (all together, after it), wfbp (each as soon as "
           "it is computed), ddp (the first 1 MiB, then 25 MiB together); or planned from the times of the "
           "first {} batches: horovod, mg-wfbp, mg-opt, libra-m, libra (docs/data-parallel.md); or auto: "
           "libra in runs of {} batches and more, else wfbp",
           kMostTuningBatches, kAutoBatches),
       one_of({"auto", "se", "wfbp", "ddp", "horovod", "mg-wfbp", "mg-opt", "libra-m", "libra"}),
       both(reduces,
            [](const O& o) {
              const bool plans = o.allreduce != "auto" && all_reduce_policy(o.allreduce).needs_times;
              return o.simulate && plans ? "with --simulate, which measures no all-reduces" : "";
            }),
       nothing},
      {"--comm-threads", &O::comm_threads,
       "threads of a rank among which libra and libra-m choose for each all-reduce (default: 1, 2, 4, … up "
       "to the rank's cores, at least 1 and 2)",
       between(1, kMostThreads),
       both(reduces, needs(&O::allreduce, {"auto", "libra", "libra-m"}, "with --allreduce {}")), nothing},
      {"--dump-profile", &O::dump_profile,
       fmt::format(
           "measure the first {} batches also if --allreduce does not need it, and write all-reduce.json to "
           "--output: the times of backward, and what all-reduces cost. tandem plan and --plan read it. With a "
           "memory plan: write memory.json, which tandem plan memory reads",
           kMostTuningBatches),
       any,
       both([=](const O& o) { return plans_memory(o) ? "" : reduces(o); },
            both(needs_training, needs(&O::output, "without --output, where its file is"))),
       nothing},
      {"--collective", &O::collective,
       fmt::format(
           "how ranks make an all-reduce of messages: direct (each with each), ring (chunks travel from "
           "rank to rank), auto (direct for up to {} ranks, then ring). It changes no bit",
           kMostDirectRanks),
       readable(&O::collective, parse_collective), reduces, nothing},
      {"--link", &O::link, "slow down links between ranks to this bandwidth, latency, or both: 1GB/s,50us",
       readable(&O::link, parse_link),
       [](const O& o) {
         return o.ranks * o.devices > 1 ? "" : "on one rank; add --parallel data or pipeline";
       },
       nothing},
  };
}

std::vector<Flag> memory_flags() {
  return {
      {"--memory-budget", &O::memory_budget,
       "limit per device: 64K, 512MB, 1.5GiB (K and kB are 1000 bytes, KiB 1024). If training needs more, "
       "backward computes activations again, and swaps them with --copy-link, as --memory-plan plans it",
       readable(&O::memory_budget, parse_bytes), always, nothing},
      {"--memory-plan", &O::memory_plan,
       fmt::format(
           "how to plan memory: {} (docs/memory.md; default: mu-two+ if --memory-budget is too small without)",
           fmt::join(names_of(memory_policies()), ", ")),
       readable(&O::memory_plan, memory_policy),
       not_with(&O::evaluate, "with --evaluate, which trains nothing"), nothing},
      {"--host-budget", &O::host_budget,
       "limit of the host's memory for swapped activations, as --memory-budget",
       readable(&O::host_budget, parse_bytes),
       [](const O& o) {
         return o.copy_link.empty() && o.plan.empty()
                    ? "without --copy-link, over which activations are swapped"
                    : "";
       },
       nothing},
      {"--copy-link", &O::copy_link,
       "play a device with memory of its own, and this link to the host: 32GB/s, or 32GB/s,shared if one "
       "copy at a time passes it. Without it swaps save nothing on a CPU, so plans only compute again",
       readable(&O::copy_link, parse_copy_link),
       [](const O& o) {
         return o.memory_budget.empty() && o.memory_plan.empty()
                    ? "without --memory-budget or --memory-plan, whose copies take it"
                    : "";
       },
       nothing},
      {"--explain", &O::explain, "print what the memory plan does with each activation, and why", any,
       [](const O& o) {
         return o.memory_budget.empty() && o.memory_plan.empty()
                    ? "without --memory-budget or --memory-plan, which plan memory"
                    : "";
       },
       nothing},
      {"--plan", &O::plan,
       "JSON file with cuts, fusion groups, swaps, recomputes, or the memory plan that another run wrote "
       "(docs/plan.md); or the all-reduce.json of "
       "another run, whose measurement replaces that of this run if both have the same gradients, batch "
       "size, ranks, transport, threads, link, collective, and settings such as precision and schedule",
       any, always, nothing},
  };
}

std::vector<Flag> output_flags() {
  return {
      {"--output", &O::output,
       "run directory: args.json, config.toml, metrics.jsonl (each step), summary.csv (each epoch), "
       "summary.json, a file for TensorBoard; all-reduce.json, if all-reduces were measured; "
       "collectives-RANK.jsonl, if a rank was lost; with --simulate also profile.json, and program.json "
       "for tandem sim. A directory that holds a run is refused without --force",
       any, always, unrecorded},
      {"--force", &O::force, "replace the run that --output holds", any,
       both(needs(&O::output, "without --output, whose files it replaces"),
            [](const O& o) {
              return o.resume != "auto" ? "" : "with --resume auto, which continues --output's run";
            }),
       unrecorded, Special::not_in_config},
      {"--trace", &O::trace,
       fmt::format("write a timeline for ui.perfetto.dev to this file, or without a file to trace.json in "
                   "--output; it holds the first {} instructions of each lane",
                   kSpansPerLane),
       any, not_with(&O::evaluate, "with --evaluate, which prints only its result"), nothing,
       Special::value_is_optional},
      {"--trace-steps", &O::trace_steps,
       "steps that --trace holds, from the first one that is measured on: where all-reduces are planned, the first "
       "one after that (0: all)",
       between(0, kMostSteps), always, nothing},
      {"--measure-prediction",
       &O::measure_prediction,
       "numbers of updates, such as 1,2,3: each line of metrics.jsonl tells, by stage, how far the weights are "
       "from what was predicted so many updates before, and from what they were then. It needs memory for so "
       "many more versions of the weights and of the optimizer's state, and changes no loss",
       {.least = 1, .most = kMostMeasured, .check = check_measured},
       both(needs(&O::output, "without --output, where its file is"), needs_training),
       nothing},
      {"--tensorboard", &O::tensorboard,
       "batches between losses and rates in --output's event file for TensorBoard (0: no file)", at_least(0),
       [](const O& o) {
         const Effect writes = both(needs(&O::output, "without --output, where its file is"), needs_training);
         return o.tensorboard == 0 ? "" : writes(o);
       },
       nothing},
      {"-p,--print-freq", &O::print_every,
       "batches between printed lines; a line is also printed after ten seconds without one. images/s "
       "is the mean since the previous line",
       at_least(1), not_with(&O::simulate, "with --simulate, which prints only its result"), unrecorded},
      {"--log-level", &O::log_level,
       fmt::format("lowest level of messages to print; results are always printed: {}",
                   fmt::join(log_levels(), ", ")),
       one_of(log_levels()), always, unrecorded},
  };
}

std::vector<Flag> checkpoint_flags() {
  return {
      {"--checkpoint-every", &O::checkpoint_every,
       "batches between checkpoints in --output's checkpoints/step-N (0: none); a run with --output "
       "also saves one at its end",
       between(0, kMostSteps),
       both(not_simulated, needs(&O::output, "without --output, which holds the checkpoints")), by_draining},
      {"--keep", &O::keep, "number of newest checkpoints to keep, at least 2", at_least(2), needs_checkpoints,
       nothing},
      {"--keep-every", &O::keep_every, "also keep the checkpoints of every so many batches (0: none)",
       between(0, kMostSteps), needs_checkpoints, nothing},
      {"--keep-best", &O::keep_best,
       "evaluate with each checkpoint, and also keep the one with the best test accuracy", any,
       needs_checkpoints, nothing},
      {"--resume", &O::resume,
       "continue from a checkpoint: its directory; a directory of checkpoints or a run (its newest intact "
       "one); or auto (the newest of --output, if there is one). A .safetensors file gives only the "
       "first weights",
       any, not_simulated, nothing, Special::not_in_config_toml},
      {"-e,--evaluate", &O::evaluate, "test the weights that --resume names; train nothing and write nothing",
       any, both(not_simulated, needs(&O::resume, "without --resume, which names the weights")), nothing},
  };
}

std::vector<Flag> simulation_flags() {
  return {
      {"--simulate", &O::simulate,
       "predict this run instead of training: measure every kernel, then simulate. Each stage is "
       "assumed to have --threads cores of its own",
       any, always, nothing},
      {"--profile", &O::profile,
       "kernel times from the profile.json of an earlier --simulate --output, with the same network, batch, "
       "ranks and micro-batches: stages are cut and memory is planned by them, if it is of this machine; "
       "--simulate, which then measures nothing, also needs the same stages and schedule",
       any,
       [](const O& o) -> std::string {
         if (o.simulate || !o.memory_plan.empty() || !o.memory_budget.empty()) return "";
         if (o.stages < 2) return "without --simulate, a memory plan, or stages that are cut by it";
         return o.evaluate ? "with --evaluate, which keeps the cuts of training" : "";
       },
       nothing},
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
