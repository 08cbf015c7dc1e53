#include "train_options.h"

#include <algorithm>
#include <cstdio>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <tandem/core/error.h>
#include <tandem/dist/launch.h>
#include <tandem/pipeline/schedules.h>

namespace tandem::apps {
namespace {

template <class T> void at_least(const char* flag, T value, T least) {
  if (value < least) throw Error(fmt::format("{} {}: must be at least {}", flag, value, least));
}

void one_of(const char* flag, const std::string& value, const std::vector<std::string>& known) {
  if (std::find(known.begin(), known.end(), value) == known.end())
    throw Error(fmt::format("{} '{}': there are {}", flag, value, fmt::join(known, ", ")));
}

// One value for all models, or one for each.
template <class T> void per_model(const char* flag, std::vector<T>& values, int models) {
  if (values.size() == 1) values.resize(static_cast<std::size_t>(models), values[0]);
  if (static_cast<int>(values.size()) != models)
    throw Error(
        fmt::format("{}: {} values for {} models; give one, or one for each", flag, values.size(), models));
}

void settle_models(TrainOptions& o) {
  if (o.models == 0) o.models = static_cast<int>(std::max(o.lr.size(), o.seed.size()));
  at_least("--models", o.models, 1);
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
  if (o.parallel == "data" && o.ranks == 0) o.ranks = world > 0 ? world : 2;
  if (o.ranks == 0) o.ranks = world > 0 ? std::max(1, world / o.stages) : 1;
  if (world > 0 && !o.simulate && o.ranks * o.stages != world)
    throw Error(fmt::format("mpirun started {} ranks, but --ranks {} × --stages {} need {}", world, o.ranks,
                            o.stages, o.ranks * o.stages));
}

void check(TrainOptions& o, const std::vector<std::string>& archs) {
  one_of("--arch", o.arch, archs);
  one_of("--sched", o.sched, {"constant", "cosine"});
  one_of("--dtype", o.dtype, {"f32", "f64"});
  schedule_from_name(o.schedule);
  at_least<std::int64_t>("--batch-size", o.batch_size, 1);
  at_least("--epochs", o.epochs, 1);
  at_least<std::int64_t>("--steps", o.steps, 0);
  at_least("--microbatches", o.microbatches, 1);
  at_least("--ranks", o.ranks, 0);
  at_least("--stages", o.stages, 0);
  at_least("--threads", o.threads, 0);
  settle_models(o);
  settle_ranks(o);
  const std::int64_t parts = std::int64_t{o.ranks} * o.microbatches;
  if (o.batch_size % parts != 0)
    throw Error(fmt::format(
        "--batch-size {} is not divided by {} ranks × {} micro-batches; the nearest that are: {} and {}",
        o.batch_size, o.ranks, o.microbatches, std::max(parts, o.batch_size / parts * parts),
        (o.batch_size / parts + 1) * parts));
}

}  // namespace

std::int64_t parse_bytes(const std::string& text) {
  std::size_t used = 0;
  double value = -1;
  try {
    value = std::stod(text, &used);
  } catch (const std::exception&) {
  }
  const std::string unit = text.substr(used);
  const std::vector<std::pair<std::string, double>> units = {{"", 1},
                                                             {"B", 1},
                                                             {"kB", 1e3},
                                                             {"MB", 1e6},
                                                             {"GB", 1e9},
                                                             {"KiB", 1024.0},
                                                             {"MiB", 1024.0 * 1024},
                                                             {"GiB", 1024.0 * 1024 * 1024}};
  for (const auto& [name, factor] : units)
    if (name == unit && value >= 0) return static_cast<std::int64_t>(value * factor);
  throw Error(fmt::format(
      "'{}' is no amount of memory; write bytes, or a number with kB, MB, GB, KiB, MiB or GiB", text));
}

bool parse(int argc, char** argv, const std::string& program, const std::vector<std::string>& archs,
           TrainOptions& o) {
  CLI::App app{program};
  app.option_defaults()->always_capture_default()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.add_option("-a,--arch", o.arch, fmt::format("network: {}", fmt::join(archs, ", ")));
  app.add_option("--data", o.data, "'synthetic', or a directory with CIFAR-10 or CIFAR-100 in binary format");
  app.add_option("--synthetic-train", o.synthetic_train, "training images of --data synthetic");
  app.add_option("--synthetic-test", o.synthetic_test, "test images of --data synthetic");
  app.add_option("--epochs", o.epochs, "passes over the training images");
  app.add_option("--steps", o.steps, "stop after this many batches (0: by --epochs)");
  app.add_option("-b,--batch-size", o.batch_size, "global batch: N ranks take 1/N each");
  app.add_option("--lr", o.lr, "learning rate, or one per model: 0.1,0.05")
      ->delimiter(',')
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--sched", o.sched, "learning-rate schedule: constant, cosine");
  app.add_option("--momentum", o.momentum, "SGD momentum");
  app.add_option("--wd,--weight-decay", o.weight_decay, "weight decay");
  app.add_option("--seed", o.seed, "seed of weights, order and dropout, or one per model: 1,2")
      ->delimiter(',')
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--threads", o.threads, "threads per compute lane (0: cores / lanes)");
  app.add_option("--parallel", o.parallel, "none, data, pipeline (pipeline with --ranks above 1 is both)");
  app.add_option("--ranks", o.ranks, "data-parallel copies (0: from mpirun)");
  app.add_option("--stages", o.stages, "pipeline stages (0: from mpirun)");
  app.add_option("--microbatches", o.microbatches, "parts of a rank's batch, one after another");
  app.add_option("--schedule", o.schedule, "pipeline schedule: gpipe, 1f1b, pipedream, dualpipe");
  app.add_option("--models", o.models, "models trained side by side (0: as many as --lr or --seed list)");
  app.add_option("--memory-budget", o.memory_budget, "per device: 512MB, 1GiB");
  app.add_option("--plan", o.plan, "JSON file with cuts, fusion groups, swaps, recomputes (docs/plan.md)");
  app.add_option("--transport", o.transport, "threads, mpi (default: mpi under mpirun)");
  app.add_option("--link", o.link, "make links between ranks this slow: 1GB/s,50us");
  app.add_option("--trace", o.trace, "write a timeline here, for ui.perfetto.dev");
  app.add_flag("--simulate", o.simulate, "predict instead of training");
  app.add_option("--profile", o.profile, "costs for --simulate, from an earlier run's profile.json");
  app.add_option("--dtype", o.dtype, "f32, f64");
  app.add_option("-p,--print-freq", o.print_every, "batches between printed lines");
  app.add_option("--output", o.output, "run directory: args.json, metrics.jsonl, summary.json");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::fputs(app.help().c_str(), stdout);
    return false;
  } catch (const CLI::ParseError& e) {
    throw Error(fmt::format("{}\nthe flags are listed by --help", e.what()));
  }
  for (int i = 0; i < argc; ++i) o.command_line += (i ? " " : "") + std::string(argv[i]);
  check(o, archs);
  return true;
}

}  // namespace tandem::apps
