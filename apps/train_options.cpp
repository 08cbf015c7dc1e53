#include "train_options.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <type_traits>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <tandem/core/base/contains.h>
#include <tandem/core/base/error.h>
#include <tandem/dist/launch.h>

#include "command_line.h"
#include "decimal.h"
#include "flags.h"
#include "pipeline_options.h"
#include "sweep.h"
#include "toml_text.h"

namespace tandem::apps {
using namespace engine;
namespace {

CLI::Option* add(CLI::App& app, const Flag& flag, bool& value) {
  return app.add_flag(flag.names, value, flag.help);
}

template <class T> CLI::Option* add(CLI::App& app, const Flag& flag, T& value) {
  return app.add_option(flag.names, value, flag.help);
}

// One number or several: 0.1,0.05.
template <class T> CLI::Option* add(CLI::App& app, const Flag& flag, std::vector<T>& values) {
  return app
      .add_option_function<std::string>(
          flag.names, [&values](const std::string& text) { values = decimals<T>(text); }, flag.help)
      ->check([](const std::string& text) { return decimals<T>(text), std::string(); })
      ->type_name(std::string(CLI::detail::type_name<T>()) + ",...")
      ->default_str(fmt::format("{}", fmt::join(values, ",")));
}

void add_flags(CLI::App& app, TrainOptions& o) {
  app.option_defaults()->always_capture_default()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  for (const Flag& flag : flags()) {
    CLI::Option* const option =
        std::visit([&](auto member) { return add(app, flag, o.*member); }, flag.member);
    option->group(flag.group)->configurable(flag.special != Special::not_in_config);
    if (flag.special == Special::value_is_optional) option->expected(0, 1)->type_name("[FILE]");
  }
  add_config(app);
}

void check_value(const Flag& flag, const std::string& value) {
  const std::vector<std::string>& texts = flag.allowed.texts;
  if (!texts.empty() && !value.empty() && !contains(texts, value))  // empty: left open
    throw Error(fmt::format("--{} '{}': it can be {}", flag.name, value, fmt::join(texts, ", ")));
}

template <class T> void check_value(const Flag& flag, const T& value) {
  if constexpr (std::is_arithmetic_v<T>) {
    const auto& [least, most, texts, check] = flag.allowed;
    if (static_cast<double>(value) < least)
      throw Error(fmt::format("--{} {}: must be at least {}", flag.name, value, least));
    if (static_cast<double>(value) > most)
      throw Error(
          fmt::format("--{} {}: must be at most {}", flag.name, value,
                      most == std::floor(most) ? fmt::format("{:.0f}", most) : fmt::format("{}", most)));
  } else {
    for (const auto& item : value) check_value(flag, item);
  }
}

void check_values(const TrainOptions& o) {
  for (const Flag& flag : flags()) {
    std::visit([&](auto member) { check_value(flag, o.*member); }, flag.member);
    try {
      if (flag.allowed.check) flag.allowed.check(o);
    } catch (const Error& e) {
      throw Error(fmt::format("--{}: {}", flag.name, e.what()));
    }
  }
}

// Throws unless there is one value, which then counts for all models, or one per model.
template <class T> void per_model(const char* flag, std::vector<T>& values, int models) {
  if (values.size() == 1) values.resize(static_cast<std::size_t>(models), values[0]);
  if (static_cast<int>(values.size()) != models)
    throw Error(fmt::format("{}: {} for {}; give one, or one for each", flag,
                            counted(std::ssize(values), "value"), counted(models, "model")));
}

// Fills in the models of a --sweep, and what each has of its own.
void settle_sweep(TrainOptions& o) {
  std::vector<SweptValues> swept;
  try {
    swept = read_sweep(o.sweep, o.models, o.seed);
  } catch (const Error& e) {
    throw Error(fmt::format("{}{}", e.what(), o.part.name.empty() ? "" : " (for each batch size)"));
  }
  o.models = static_cast<int>(swept.size());
  per_model("--lr", o.lr, o.models);
  per_model("--seed", o.seed, o.models);  // the models differ in what is swept alone
  o.swept = swept;
  constexpr std::uint64_t kMost = 9'000'000'000'000'000;  // of --data-seed
  if (data_seed(o) > kMost)
    throw Error(
        fmt::format("--seed {}: a sweep gives each model's command its --data-seed, which is at most {}",
                    o.seed[0], kMost));
  for (int m = 0; m < o.models; ++m) {
    TrainOptions one = o;  // the other flags are not settled yet
    one.lr = {o.lr[static_cast<std::size_t>(m)]};
    one.seed = {o.seed[static_cast<std::size_t>(m)]};
    for (const auto& [flag, value] : swept[static_cast<std::size_t>(m)]) set_flag(one, flag, value);
    if (one.lr.size() > 1 || one.seed.size() > 1)
      throw Error("--sweep: each model has one --lr and one --seed; join values by commas");
    check_values(one);
    o.lr[static_cast<std::size_t>(m)] = one.lr[0];
    o.seed[static_cast<std::size_t>(m)] = one.seed[0];
  }
}

void settle_models(TrainOptions& o) {
  if (!o.sweep.empty()) return settle_sweep(o);
  if (o.models == 0) o.models = static_cast<int>(std::max(o.lr.size(), o.seed.size()));
  if (o.seed.size() == 1)  // models without their own seeds must differ, too
    for (int m = 1; m < o.models; ++m) o.seed.push_back(o.seed[0] + static_cast<std::uint64_t>(m));
  per_model("--lr", o.lr, o.models);
  per_model("--seed", o.seed, o.models);
}

constexpr int kMostRankThreads = 256;  // each rank has several threads, and a copy of the model

// Sets transport, parallelism, ranks and stages from the flags and from what mpirun started.
void settle_ranks(TrainOptions& o) {
  const LaunchEnvironment env = launch_environment();
  if (o.transport.empty()) o.transport = env.launched && env.size > 1 ? "mpi" : "threads";
  if (o.transport == "threads" && env.launched && env.size > 1)
    throw Error(
        fmt::format("mpirun started {}, but --transport threads uses one process; leave out one of the two",
                    counted(env.size, "process")));
  const int world = o.transport == "mpi" ? env.size : 0;  // 0: as many as asked for
  if (o.parallel.empty()) o.parallel = o.stages > 1 ? "pipeline" : o.ranks > 1 || world > 1 ? "data" : "none";
  if (o.parallel != "pipeline" && o.stages > 1)
    throw Error(fmt::format("--stages {} needs --parallel pipeline", o.stages));
  if (o.parallel == "none" && o.ranks > 1)
    throw Error(fmt::format("--ranks {} needs --parallel data or pipeline", o.ranks));
  if (o.parallel == "pipeline") settle_pipeline(o, world > 0 ? std::max(1, world / std::max(1, o.ranks)) : 0);
  if (o.stages == 0) o.stages = 1;
  if (o.microbatches == 0) o.microbatches = 1;
  if (o.parallel == "none") o.ranks = 1;
  if (o.parallel == "data" && o.ranks == 0) o.ranks = world > 0 ? world : 2;
  if (o.ranks == 0) o.ranks = world > 0 ? std::max(1, world / o.devices) : 1;
  const int ranks = o.ranks * o.devices;
  if (world > 0 && !env.launched && !o.simulate && ranks != world)
    throw Error(fmt::format("--transport mpi: mpirun starts the ranks, which are {} here: mpirun -np {} …",
                            ranks, ranks));
  if (world == 0 && !o.simulate && ranks > kMostRankThreads)
    throw Error(fmt::format(
        "--ranks {} × --stages {} are {} ranks; as threads of one process they can be at most {}, so start them "
        "with mpirun",
        o.ranks, o.devices, ranks, kMostRankThreads));
  if (world > 0 && !o.simulate && ranks != world)
    throw Error(fmt::format("mpirun started {}, but --parallel {} with --ranks {} × --stages {} needs {}",
                            counted(world, "rank"), o.parallel, o.ranks, o.devices, ranks));
}

// Checks of several flags together.
void check_combinations(const TrainOptions& o) {
  if (o.on_nan == "mask" && o.loss_scale > 0)
    throw Error(
        "--on-nan mask does not go with --loss-scale, which skips batches itself: leave out one of the two");
  if ((o.sched == "step" || o.sched == "multistep") && o.decay_epochs.empty())
    throw Error(fmt::format("--sched {} needs --decay-epochs", o.sched));
  if (o.sched == "step" && o.decay_epochs.size() > 1)
    throw Error("--sched step takes one number of --decay-epochs; multistep takes several");
  if (o.amp_dtype != "none" && o.dtype != "f32")
    throw Error(fmt::format("--amp-dtype {} needs --dtype f32, not {}", o.amp_dtype, o.dtype));
  if (o.on_nan == "rollback" && o.checkpoint_every == 0)
    throw Error("--on-nan rollback needs --checkpoint-every, which sets where the run can go back to");
  if (o.keep_every > 0 && o.keep_every % o.checkpoint_every != 0)
    throw Error(fmt::format(
        "--keep-every {} is no multiple of --checkpoint-every {}, so it would keep few checkpoints",
        o.keep_every, o.checkpoint_every));
  if (o.resume == "auto" && o.output.empty())
    throw Error("--resume auto needs --output, whose checkpoints it uses");
  const std::int64_t parts = std::int64_t{o.ranks} * o.microbatches;
  if (o.batch_size % parts != 0) {
    const std::int64_t below = o.batch_size / parts * parts, above = below + parts;
    throw Error(fmt::format(
        "--batch-size {} is no multiple of {} × {}; the nearest multiple is {}{}{}", o.batch_size,
        counted(o.ranks, "rank"), counted(o.microbatches, "micro-batch"),
        below > 0 ? fmt::format("{} or ", below) : "", above,
        o.drop_last ? ""
                    : "; the last batch of an epoch must be one, too, unless --drop-last leaves it out"));
  }
}

// Of a sweep, a flag has an effect if it has one for some model.
std::string why_without_effect(const Flag& flag, const TrainOptions& o) {
  std::string why = flag.without_effect(o);
  for (int m = 0; m < std::ssize(o.swept) && !why.empty(); ++m) {
    TrainOptions one = o;
    for (const auto& [name, value] : o.swept[static_cast<std::size_t>(m)]) set_flag(one, name, value);
    why = flag.without_effect(one);
  }
  return why;
}

// Each model's own values, as check_combinations and without_effect see them in a run of it alone.
void check_swept(const TrainOptions& o, const std::function<bool(const std::string& name)>& given) {
  for (std::size_t m = 0; m < o.swept.size(); ++m) {
    for (const auto& [name, value] : o.swept[m]) {
      if (given(name) && gives(o.sweep, name))
        throw Error(fmt::format("--{} stands beside --sweep, which gives it too: leave out one", name));
      for (const Flag& flag : flags())
        if (flag.name == name && flag.without_effect)
          if (const std::string why = why_without_effect(flag, o); !why.empty())
            throw Error(fmt::format("--sweep: --{} {} has no effect {}", name, value, why));
    }
    check_combinations(options_of_model(o, static_cast<int>(m)));
    if (o.mixup > 0 && (options_of_model(o, static_cast<int>(m)).label_smoothing > 0) !=
                           (options_of_model(o, 0).label_smoothing > 0))
      throw Error("--sweep: with --mixup, --label-smoothing is 0 in all models, or in none");
  }
}

// Whether a model that has diverged can stay as it is beside the others: not under loss scaling, which skips
// batches itself.
bool can_mask(const TrainOptions& o) { return o.loss_scale == 0 && !o.evaluate; }

// Fills in what the command line leaves open, and checks everything. `given` returns whether the flag --name
// was on the command line or in --config's file.
void settle(TrainOptions& o, const std::function<bool(const std::string& name)>& given) {
  check_values(o);
  if (!given("lr")) o.lr = {default_rate(o.arch, o.optimizer, o.batch_size)};
  settle_models(o);
  settle_seeds(o);
  settle_ranks(o);
  check_values(o);                  // again, with the values that follow from other flags
  for (const Flag& flag : flags())  // what the user asks for must happen, or be refused
    if (flag.without_effect && given(flag.name))
      if (const std::string why = why_without_effect(flag, o); !why.empty())
        throw Error(fmt::format("--{} has no effect {}", flag.name, why));
  if (o.models == 1 && o.on_nan == "mask")
    throw Error("--on-nan mask is for several models: one model that has diverged ends the run (stop)");
  if (o.models > 1 && !given("on-nan")) o.on_nan = can_mask(o) ? "mask" : "stop";
  check_combinations(o);
  check_swept(o, given);
  if (given("trace") && o.trace.empty()) {
    if (o.output.empty())
      throw Error("--trace without a file writes trace.json into --output; add one of the two");
    o.trace = o.output + "/trace.json";
  }
  if (o.trace_steps > 0 && o.trace.empty()) throw Error("--trace-steps has no effect without --trace");
  if (o.epochs == 0 && o.steps == 0) o.epochs = 1;
}

}  // namespace

// vgg16 and snn have no norms.
double default_rate(const std::string& arch, const std::string& optimizer, std::int64_t batch_size) {
  const double part = static_cast<double>(std::min<std::int64_t>(batch_size, 128)) / 128;
  if (optimizer != "sgd") return part * (arch == "vgg16" || arch == "snn" ? 0.0001 : 0.001);
  return part * (arch == "snn" ? 0.0003 : arch == "vgg16" ? 0.01 : 0.05);
}

std::vector<TrainOptions> parse(int argc, char** argv) {
  CLI::App app{"Trains an image classifier on CIFAR.", "train_cifar"};
  TrainOptions all;
  add_flags(app, all);
  if (!parse_command_line(app, argc, argv)) return {};
  for (int i = 0; i < argc; ++i) all.command_line += (i ? " " : "") + std::string(argv[i]);
  for (const Flag& flag : flags())
    if (app.count("--" + flag.name) > 0) all.given.push_back(flag.name);
  std::vector<TrainOptions> runs = runs_of(all);
  for (TrainOptions& run : runs) {
    const auto given = [&](const std::string& name) { return contains(run.given, name); };
    nlohmann::ordered_json config = nlohmann::ordered_json::object();
    for (const Flag& flag : flags())
      if (given(flag.name) && flag.special != Special::not_in_config &&
          flag.special != Special::not_in_config_toml)
        config[flag.name] = value_of(flag, run);
    run.config = to_toml(config);
    settle(run, given);
  }
  return runs;
}

}  // namespace tandem::apps
