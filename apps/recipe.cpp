#include "recipe.h"

#include <algorithm>
#include <cstdlib>

#include <unistd.h>

#include <fmt/format.h>

#include <tandem/core/runtime/gather.h>
#include <tandem/dist/data_parallel.h>
#include <tandem/dist/launch.h>
#include <tandem/engine.h>
#include <tandem/plan/plan_file.h>

#include "log.h"
#include "memory_report.h"
#include "parse_bytes.h"
#include "pipeline_options.h"
#include "sweep.h"
#include "typed_schedule.h"

namespace tandem::apps {
using namespace engine;
namespace {

Optimizer optimizer_of(const TrainOptions& o) {
  if (o.optimizer == "sgd")
    return SgdOptions{.momentum = o.momentum,
                      .weight_decay = o.weight_decay,
                      .nesterov = o.nesterov,
                      .rule = sgd_rule(o.sgd_rule)};
  return AdamOptions{.beta1 = o.betas[0],
                     .beta2 = o.betas[1],
                     .weight_decay = o.weight_decay,
                     .decoupled = o.optimizer == "adamw"};
}

// Sets the probability of a network's dropout layers, and returns how many there are.
int set_dropout(nn::ModuleBase& module, double p) {
  int count = 0;
  if (auto* dropout = dynamic_cast<nn::Dropout*>(&module)) dropout->set_probability(p), ++count;
  for (nn::ModuleBase* child : module.children()) count += set_dropout(*child, p);
  return count;
}

// The paths of parameters with one dimension: biases, and the scales of normalizations.
std::vector<std::string> vectors_of(const Graph& g) {
  std::vector<std::string> paths;
  for (const State& s : g.states())
    if (s.trained && s.type.rank() == 1) paths.push_back(s.path);
  return paths;
}

}  // namespace

CoreShares share_cores(const TrainOptions& o, MpiSession* mpi) {
  CoreShares c;
  c.available = default_threads();
  const int sharing = mpi ? mpi->ranks_on_these_cores() : o.ranks * o.devices;
  if (mpi && std::getenv("TANDEM_THREADS") && c.available * sharing <= available_cores())
    c.available *= sharing;  // it is the number of each process
  // mpirun may have bound this process to some of the machine's cores. If it is the parent of this process,
  // its own cores are those of the job, which a batch system may have limited.
  if (const LaunchEnvironment launch = launch_environment();
      std::getenv("OMPI_COMM_WORLD_SIZE") && launch.local_size > 0)
    c.out_of_reach = std::max(0, available_cores(getppid()) - available_cores() * launch.local_size);
  c.lanes = std::max(schedule_of(o).compute_lanes(), o.array_lanes) * sharing;
  c.loaders = o.workers * (mpi ? std::min(sharing, o.ranks) : 1);  // each process whose stage takes images
  c.threads = o.threads > 0 ? o.threads : std::max(1, (c.available - c.loaders) / c.lanes);
  c.rank = std::max(1, c.available / sharing);
  if (mpi) {
    const auto comm = mpi->comm();
    c.threads = least(*comm, c.threads);  // losses depend on it
    c.rank = least(*comm, c.rank);
  }
  return c;
}

namespace {

bool measures_all_reduces(const TrainOptions& o) { return o.dump_profile && o.ranks > 1; }
bool plans_from_bytes(const TrainOptions& o) {
  return o.allreduce != "auto" && !measures_all_reduces(o) && !all_reduce_policy(o.allreduce).needs_times;
}

}  // namespace

Strategy strategy_of(const TrainOptions& o, const Graph& forward, int threads) {
  Strategy s;
  s.models = o.models;
  s.arrays = o.arrays;
  s.array_order = o.array_ring ? ArrayOrder::ring : ArrayOrder::in_turn;
  s.array_lanes = o.array_lanes;
  s.replicas = o.ranks;
  s.stages = o.stages;
  s.microbatches = o.microbatches;
  s.chunks = o.chunks;
  s.spectrain_target = spectrain_target(o.spectrain_target);
  if (o.parallel == "pipeline" && is_schedule_file(o.schedule))
    s = with_schedule(std::move(s), schedule_of(o));
  else if (o.parallel == "pipeline")
    s.schedule = o.schedule;
  s.lockstep = o.lockstep;
  s.optimizer = optimizer_of(o);
  if (!o.swept.empty())
    for (int m = 0; m < o.models; ++m) s.each.push_back(model_options_of(options_of_model(o, m)));
  if (!s.each.empty()) s.optimizer = s.each[0].optimizer;
  s.masks_models = o.models > 1 && (o.on_nan == "mask" || o.prune != "none");  // as the Trainer does
  s.measure_prediction = o.measure_prediction;
  if (o.loss_scale > 0) s.gradients.loss_scale = LossScale{.initial = o.loss_scale};
  if (o.clip_norm > 0) s.gradients.clip_norm = o.clip_norm;
  s.gradients.clip_scope = clip_scope(o.clip_scope);
  if (o.clip_value > 0) s.gradients.clip_value = o.clip_value;
  if (o.no_bias_decay) s.parameter_groups = {{vectors_of(forward), 1, 0.0}};
  if (o.amp_dtype == "bf16") s.amp = DType::bf16;
  s.threads = threads;
  if (!o.link.empty()) s.link = parse_link(o.link);
  s.collective = parse_collective(o.collective);
  if (!o.memory_budget.empty()) s.memory_budget = parse_bytes(o.memory_budget);
  s.memory_plan = o.memory_plan;
  if (!o.host_budget.empty()) s.host_budget = parse_bytes(o.host_budget);
  if (!o.copy_link.empty()) s.copy_link = parse_copy_link(o.copy_link);
  const bool names_policy = o.allreduce != "auto", measures = measures_all_reduces(o);
  if (!o.plan.empty() && holds_all_reduces(o.plan)) {
    const std::string why = o.ranks < 2           ? "with one data-parallel rank"
                            : o.simulate          ? "with --simulate"
                            : measures            ? "with --dump-profile, which measures"
                            : plans_from_bytes(o) ? "with --allreduce " + o.allreduce
                                                  : "";
    if (!why.empty())
      throw Error(fmt::format("--plan '{}' holds what all-reduces take, which has no effect {}: leave it out",
                              o.plan, why));
  } else if (!o.plan.empty()) {
    read_plan(o.plan, s);
  }
  if ((names_policy || measures) && !s.fusion_groups.empty())
    throw Error(fmt::format("{} stands beside the fusion_groups of '{}': leave out one of them",
                            names_policy ? "--allreduce " + o.allreduce : "--dump-profile", o.plan));
  return s;
}

void group_gradients(const TrainOptions& o, const Graph& forward, Strategy& s) {
  if (plans_from_bytes(o)) s.fusion_groups = fusion_groups(gradient_layers(forward, s), o.allreduce);
}

LrSchedule lr_schedule_of(const TrainOptions& o, const RunLength& length, double lr) {
  const std::int64_t per_epoch = length.per_epoch, warm = o.warmup_epochs * per_epoch;
  const std::int64_t rest = std::max<std::int64_t>(1, length.total - warm);
  const double least = lr > 0 ? o.min_lr / lr : 0;
  std::vector<std::int64_t> at;
  for (int epoch : o.decay_epochs) at.push_back(epoch * per_epoch - warm);
  LrSchedule main = constant_lr();
  if (o.sched == "cosine") main = cosine_lr(rest, least);
  if (o.sched == "linear") main = linear_lr(rest, least);
  if (o.sched == "step") {
    const LrSchedule whole = step_lr(o.decay_epochs.at(0) * per_epoch, o.decay_rate);
    main = [=](std::int64_t batch) { return whole(batch + warm); };
  }
  if (o.sched == "multistep") main = multi_step_lr(at, o.decay_rate);
  return warm_up(warm, main, lr > 0 ? o.warmup_lr / lr : 0);
}

std::unique_ptr<nn::Module> network_of(const TrainOptions& o, int classes) {
  const nn::DtypeScope dtype(dtype_from_name(o.dtype));
  auto network = nn::make_network(o.arch, classes);
  if (o.dropout >= 0 && set_dropout(*network, o.dropout) == 0)
    throw Error(fmt::format("--dropout has no effect on {}, which has no dropout layers", o.arch));
  return network;
}

Objective objective_of(const TrainOptions& o) { return classification(o.label_smoothing); }

ModelOptions model_options_of(const TrainOptions& o) {
  ModelOptions model{optimizer_of(o)};
  if (o.clip_norm > 0) model.clip_norm = o.clip_norm;
  if (o.clip_value > 0) model.clip_value = o.clip_value;
  return model;
}

void draw_weights(nn::Module& network, const TrainOptions& o) {
  network.initialize(o.seed[0]);
  if (o.init_gain == 1) return;
  StateDict state = network.state();
  for (const auto& [path, p] : network.named_parameters())
    if (p->tensor.needs_grad() && p->tensor.type().rank() > 1)
      state[path] = scale(state.at(path), o.init_gain);
  network.load(state);
}

StateDict initial_state(const TrainOptions& o, int classes) {
  std::vector<StateDict> models;
  for (int m = 0; m < o.models; ++m) {
    const TrainOptions one = options_of_model(o, m);
    const auto network = network_of(one, classes);
    draw_weights(*network, one);
    models.push_back(network->state());
  }
  return stack_states(models);
}

void say_plan(const Graph& forward, const Strategy& s) {
  Strategy bare = s;
  bare.swap.clear();
  bare.recompute.clear();
  bare.memory_budget = 0;
  const Program program = build(forward, s), without = build(forward, bare);
  const auto mb = [](std::int64_t bytes) { return static_cast<double>(bytes) / 1e6; };
  const std::int64_t more = planned_peak(program) - planned_peak(without);
  const bool lowers = more < 0;
  const std::string text = fmt::format(
      "{}: planned peak {:.1f} MB, {:.1f} MB without swaps and recomputes (live {:.1f}, {:.1f} MB)",
      lowers     ? "plan"
      : more > 0 ? "the plan raises the peak"
                 : "the plan does not lower the peak",
      mb(planned_peak(program)), mb(planned_peak(without)), mb(live_peak(program)), mb(live_peak(without)));
  lowers ? log_info(text) : log_warning(text);
}

}  // namespace tandem::apps
