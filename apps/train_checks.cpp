#include "train_checks.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tandem/core/base/error.h>
#include <tandem/datasets/bad_samples.h>
#include <tandem/dist/launch.h>
#include <tandem/dist/link.h>
#include <tandem/pipeline/schedules.h>
#include <tandem/plan/loss_scale.h>

#include "augment.h"
#include "log.h"

namespace tandem::apps {
using namespace engine;
namespace {

// More is a slip of the pen, and would overflow, or allocate for hours.
constexpr std::int64_t kMostImages = 10'000'000, kMostSteps = 1'000'000'000'000;
constexpr int kMostEpochs = 1'000'000, kMostParts = 10'000, kMostThreads = 1024;

template <class T> void in_range(const char* flag, T value, T least, T most = std::numeric_limits<T>::max()) {
  if (value < least) throw Error(fmt::format("{} {}: must be at least {}", flag, value, least));
  if (value > most) throw Error(fmt::format("{} {}: must be at most {}", flag, value, most));
}

void one_of(const char* flag, const std::string& value, const std::vector<std::string>& known) {
  if (std::find(known.begin(), known.end(), value) == known.end())
    throw Error(fmt::format("{} '{}': it can be {}", flag, value, fmt::join(known, ", ")));
}

// One value for all models, or one for each.
template <class T> void per_model(const char* flag, std::vector<T>& values, int models) {
  if (values.size() == 1) values.resize(static_cast<std::size_t>(models), values[0]);
  if (static_cast<int>(values.size()) != models)
    throw Error(fmt::format("{}: {} for {}; give one, or one for each", flag,
                            counted(std::ssize(values), "value"), counted(models, "model")));
}

void settle_models(TrainOptions& o) {
  if (o.models == 0) o.models = static_cast<int>(std::max(o.lr.size(), o.seed.size()));
  in_range("--models", o.models, 1, kMostParts);
  if (o.seed.size() == 1)  // models without seeds of their own differ all the same
    for (int m = 1; m < o.models; ++m) o.seed.push_back(o.seed[0] + static_cast<std::uint64_t>(m));
  per_model("--lr", o.lr, o.models);
  per_model("--seed", o.seed, o.models);
}

// From what the user says and what mpirun says, who there is.
void settle_ranks(TrainOptions& o) {
  const LaunchEnvironment env = launch_environment();
  if (o.transport.empty()) o.transport = env.launched && env.size > 1 ? "mpi" : "threads";
  one_of("--transport", o.transport, {"threads", "mpi"});
  if (o.transport == "threads" && env.launched && env.size > 1)
    throw Error(
        fmt::format("mpirun started {}, but --transport threads runs in one; leave out one of the two",
                    counted(env.size, "process")));
  const int world = o.transport == "mpi" ? env.size : 0;  // 0: as many as asked for
  if (o.parallel.empty()) o.parallel = o.stages > 1 ? "pipeline" : o.ranks > 1 || world > 1 ? "data" : "none";
  one_of("--parallel", o.parallel, {"none", "data", "pipeline"});
  if (o.parallel != "pipeline" && o.stages > 1)
    throw Error(fmt::format("--stages {} needs --parallel pipeline", o.stages));
  if (o.parallel == "none" && o.ranks > 1)
    throw Error(fmt::format("--ranks {} needs --parallel data or pipeline", o.ranks));
  if (o.parallel == "pipeline" && o.stages == 0)
    o.stages = world > 0 ? std::max(1, world / std::max(1, o.ranks)) : 2;
  if (o.stages == 0) o.stages = 1;
  if (o.parallel == "none") o.ranks = 1;
  if (o.parallel == "data" && o.ranks == 0) o.ranks = world > 0 ? world : 2;
  if (o.ranks == 0) o.ranks = world > 0 ? std::max(1, world / o.stages) : 1;
  if (world > 0 && !o.simulate && o.ranks * o.stages != world)
    throw Error(fmt::format("mpirun started {}, but --parallel {} with --ranks {} × --stages {} needs {}",
                            counted(world, "rank"), o.parallel, o.ranks, o.stages, o.ranks * o.stages));
}

void check_values(const TrainOptions& o, const std::vector<std::string>& archs) {
  one_of("--arch", o.arch, archs);
  one_of("--sched", o.sched, {"constant", "cosine", "linear", "step", "multistep"});
  in_range("--min-lr", o.min_lr, 0.0);
  in_range("--warmup-lr", o.warmup_lr, 0.0);
  in_range("--warmup-epochs", o.warmup_epochs, 0, kMostEpochs);
  in_range("--decay-rate", o.decay_rate, 0.0);
  for (int epoch : o.decay_epochs) in_range("--decay-epochs", epoch, 1, kMostEpochs);
  const bool steps = o.sched == "step" || o.sched == "multistep";
  if (steps && o.decay_epochs.empty()) throw Error(fmt::format("--sched {} needs --decay-epochs", o.sched));
  if (o.sched == "step" && o.decay_epochs.size() > 1)
    throw Error("--sched step takes one number of --decay-epochs; multistep takes several");
  one_of("--dtype", o.dtype, {"f32", "f64"});
  schedule_from_name(o.schedule);
  in_range<std::int64_t>("--synthetic-train", o.synthetic_train, 1, kMostImages);
  in_range<std::int64_t>("--synthetic-test", o.synthetic_test, 1, kMostImages);
  in_range<std::int64_t>("--batch-size", o.batch_size, 1, kMostImages);
  in_range("--epochs", o.epochs, 0, kMostEpochs);
  in_range<std::int64_t>("--steps", o.steps, 0, kMostSteps);
  in_range("--patience", o.patience, 0, kMostEpochs);
  for (double lr : o.lr) in_range("--lr", lr, 0.0);
  one_of("--amp-dtype", o.amp_dtype, {"none", "bf16"});
  if (o.amp_dtype != "none" && o.dtype != "f32")
    throw Error(fmt::format("--amp-dtype {} needs --dtype f32, not {}", o.amp_dtype, o.dtype));
  in_range("--loss-scale", o.loss_scale, 0.0);
  if (o.loss_scale > 0) check(LossScale{.initial = o.loss_scale});
  in_range("--clip-grad", o.clip_norm, 0.0);
  in_range("--clip-value", o.clip_value, 0.0);
  one_of("--on-nan", o.on_nan, {"stop", "skip", "rollback"});
  in_range("--max-rollbacks", o.max_rollbacks, 0);
  one_of("--log-level", o.log_level, log_levels());
  one_of("--opt", o.optimizer, {"sgd", "adam", "adamw"});
  in_range("--momentum", o.momentum, 0.0);
  if (o.betas.size() != 2) throw Error(fmt::format("--betas {}: there must be two", fmt::join(o.betas, ",")));
  for (double beta : o.betas)
    if (!(beta >= 0 && beta < 1)) throw Error(fmt::format("--betas {}: each must be in [0, 1)", beta));
  in_range("--weight-decay", o.weight_decay, 0.0);
  in_range("--microbatches", o.microbatches, 1, kMostParts);
  in_range("--ranks", o.ranks, 0, kMostParts);
  in_range("--stages", o.stages, 0, kMostParts);
  in_range("--models", o.models, 0, kMostParts);
  in_range("--threads", o.threads, 0, kMostThreads);
  in_range("--workers", o.workers, 0, kMostThreads);
  check_augmentations(o.augment);
  in_range("--mixup", o.mixup, 0.0, 4.0);
  in_range("--print-freq", o.print_every, 1);
  in_range("--tensorboard", o.tensorboard, 0);
  in_range<std::int64_t>("--checkpoint-every", o.checkpoint_every, 0, kMostSteps);
  in_range<std::int64_t>("--keep-every", o.keep_every, 0, kMostSteps);
  in_range("--keep", o.keep, 2);
  if (!o.link.empty()) parse_link(o.link);
  try {
    allowed_bad_samples(o.bad_samples);
  } catch (const Error& e) {
    throw Error(fmt::format("--bad-samples {}", e.what()));
  }
  if (!o.memory_budget.empty() && parse_bytes(o.memory_budget) < 1)
    throw Error(fmt::format("--memory-budget {}: must be at least 1 byte", o.memory_budget));
}

// What the user asks for must happen, or be refused.
void check_effects(const TrainOptions& o, const std::function<bool(const std::string&)>& given) {
  const auto needs = [&](const char* flag, bool met, const std::string& what) {
    if (given(flag) && !met) throw Error(fmt::format("{} has no effect {}", flag, what));
  };
  needs("--synthetic-train", o.data == "synthetic", fmt::format("with --data {}", o.data));
  needs("--synthetic-test", o.data == "synthetic", fmt::format("with --data {}", o.data));
  const bool curve = o.sched == "cosine" || o.sched == "linear",
             steps = o.sched == "step" || o.sched == "multistep";
  needs("--min-lr", curve, fmt::format("on --sched {}", o.sched));
  needs("--decay-epochs", steps, fmt::format("on --sched {}", o.sched));
  needs("--decay-rate", steps, fmt::format("on --sched {}", o.sched));
  needs("--warmup-lr", o.warmup_epochs > 0, "without --warmup-epochs");
  needs("--momentum", o.optimizer == "sgd", fmt::format("on --opt {}", o.optimizer));
  needs("--nesterov", o.optimizer == "sgd", fmt::format("on --opt {}", o.optimizer));
  needs("--nesterov", o.momentum > 0, "without --momentum");
  needs("--betas", o.optimizer != "sgd", "on --opt sgd");
  needs("--no-bias-decay", o.weight_decay > 0, "without --weight-decay");
  needs("--bad-samples", o.data != "synthetic", "on images that are drawn; add --data");
  needs("--workers", !o.simulate, "with --simulate, which measures each step alone");
  needs("--drop-last", !o.simulate, "with --simulate, which predicts whole batches");
  needs("--schedule", o.parallel == "pipeline", "without --parallel pipeline");
  needs("--lockstep", o.parallel == "pipeline", "without --parallel pipeline");
  needs("--link", o.ranks * o.stages > 1, "on one rank; add --parallel data or pipeline");
  needs("--force", !o.output.empty(), "without --output, whose files it replaces");
  for (const char* flag : {"--checkpoint-every", "--resume", "--evaluate"})
    needs(flag, !o.simulate, "with --simulate, which trains nothing");
  needs("--max-rollbacks", o.on_nan == "rollback", "without --on-nan rollback");
  if (o.on_nan == "rollback" && o.checkpoint_every == 0)
    throw Error("--on-nan rollback needs --checkpoint-every, which says where the run may go back to");
  needs("--checkpoint-every", !o.output.empty(), "without --output, where checkpoints are kept");
  for (const char* flag : {"--keep", "--keep-every", "--keep-best"})
    needs(flag, o.checkpoint_every > 0, "without --checkpoint-every");
  if (o.keep_every > 0 && o.keep_every % o.checkpoint_every != 0)
    throw Error(fmt::format("--keep-every {} is no multiple of --checkpoint-every {}, so few would be kept",
                            o.keep_every, o.checkpoint_every));
  needs("--evaluate", !o.resume.empty(), "without --resume, which names the weights");
  needs("--trace", !o.evaluate, "with --evaluate, which prints its result alone");
  if (o.resume == "auto") {
    if (o.output.empty()) throw Error("--resume auto needs --output, whose checkpoints it looks for");
    needs("--force", false, "with --resume auto, which goes on with the run that --output holds");
  }
  needs("--tensorboard", !o.output.empty(), "without --output, where its file is");
  needs("--tensorboard", !o.simulate && !o.evaluate, "on what trains nothing");
  needs("--profile", o.simulate, "on training; add --simulate, or leave it out");
  needs("--epochs", !o.simulate, "with --simulate; --steps says how many batches are predicted");
  needs("--patience", !o.simulate && !o.evaluate, "on what trains nothing");
  needs("--print-freq", !o.simulate, "with --simulate, which prints its result alone");
}

}  // namespace

void settle(TrainOptions& o, const std::vector<std::string>& archs,
            const std::function<bool(const std::string&)>& given) {
  check_values(o, archs);
  settle_models(o);
  settle_ranks(o);
  check_effects(o, given);
  if (given("--trace") && o.trace.empty()) {
    if (o.output.empty())
      throw Error("--trace without a file writes trace.json into --output; add one of the two");
    o.trace = o.output + "/trace.json";
  }
  if (o.epochs == 0 && o.steps == 0) o.epochs = 1;
  const std::int64_t parts = std::int64_t{o.ranks} * o.microbatches;
  if (o.batch_size % parts != 0) {
    const std::int64_t below = o.batch_size / parts * parts, above = below + parts;
    throw Error(fmt::format("--batch-size {} is not divided by {} × {}; the nearest that is: {}{}",
                            o.batch_size, counted(o.ranks, "rank"), counted(o.microbatches, "micro-batch"),
                            below > 0 ? fmt::format("{} or ", below) : "", above));
  }
}

}  // namespace tandem::apps
