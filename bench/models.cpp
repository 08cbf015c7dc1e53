// Measures how many steps of several models a machine trains per second: side by side in one process, in the
// ways that Tandem has, and in a process for each model.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <functional>

#include <tandem/engine.h>
#include <tandem/tandem.h>

#include "command_line.h"
#include "measure.h"
#include "report.h"

namespace tandem::bench {
namespace {
using namespace engine;

struct Options {
  std::string network = "mlp32";
  int models = 16, threads = 2, rounds = 3;
  std::int64_t batch = 32;
  double seconds = 2;
  bool augment = true;
  double at = -1;  // of a process of its own: when the measurement begins
};

std::unique_ptr<nn::Module> make(const std::string& network) {
  if (network == "mlp32") return std::make_unique<nn::Mlp>(nn::MlpOptions{.hidden = 32});
  return nn::make_network(network, 10);
}

DatasetPtr images(const Options& o) {
  DatasetPtr all = std::make_shared<MemoryDataset>(draw_cifar(2000, 1, 0));
  if (o.augment)
    all = mapped(std::move(all), {std::make_shared<RandomCrop>(1), std::make_shared<RandomFlip>(1)});
  all = mapped(std::move(all), {std::make_shared<Normalize>(kCifarMean, kCifarStd, DType::f32)});
  return std::make_shared<ShuffledDataset>(std::move(all), 1);
}

// Trains until a second after the window, and returns how many batches ended in it.
int batches_in_window(const Options& o, Strategy strategy, double begin) {
  const auto net = make(o.network);
  net->initialize(1);
  const int models = std::max(1, strategy.models);
  TrainerOptions with;
  with.strategy = std::move(strategy);
  with.strategy.optimizer = SgdOptions{.momentum = 0.9};
  with.batch_size = o.batch;
  with.epochs = 1'000'000;
  with.drop_last = true;
  with.lr.assign(static_cast<std::size_t>(models), 0.001);
  with.seeds.assign(static_cast<std::size_t>(models), 1);
  Trainer trainer(*net, images(o), std::move(with));
  trainer.load(stack_states(std::vector<StateDict>(static_cast<std::size_t>(models), net->state())));
  int count = 0;
  trainer.add({.batch = [&](const BatchResult&) {
    const double now = steady_seconds();
    count += now >= begin && now < begin + o.seconds ? 1 : 0;
    if (now >= begin + o.seconds) trainer.stop_after_epoch();
  }});
  trainer.fit();
  return count;
}

// A process for each model, each with one thread.
double steps_of_processes(const Options& o, const char* program) {
  const double begin = steady_seconds() + 1.5;
  std::vector<std::pair<pid_t, int>> children;
  for (int m = 0; m < o.models; ++m) {
    int ends[2];
    if (pipe(ends) != 0) throw Error("no pipe can be made");
    const pid_t child = fork();
    if (child == 0) {
      dup2(ends[1], STDOUT_FILENO);
      const std::vector<std::string> arguments{program,
                                               o.network,
                                               "--at",
                                               fmt::format("{}", begin),
                                               "--batch-size",
                                               fmt::format("{}", o.batch),
                                               "--seconds",
                                               fmt::format("{}", o.seconds),
                                               o.augment ? "--augment" : "--no-augment"};
      std::vector<char*> texts;
      for (const std::string& a : arguments) texts.push_back(const_cast<char*>(a.c_str()));
      texts.push_back(nullptr);
      execv("/proc/self/exe", texts.data());
      std::_Exit(1);
    }
    close(ends[1]);
    children.emplace_back(child, ends[0]);
  }
  double steps = 0;
  for (const auto& [child, end] : children) {
    std::string text(64, '\0');
    const ssize_t got = read(end, text.data(), text.size());
    close(end);
    int status = 0;
    waitpid(child, &status, 0);
    if (got <= 0 || status != 0) throw Error("a process of one model failed");
    steps += std::stod(text.substr(0, static_cast<std::size_t>(got)));
  }
  return steps / o.seconds;
}

double steps_side_by_side(const Options& o, int arrays) {
  Strategy s;
  s.models = o.models;
  s.threads = arrays > 1 ? 1 : o.threads;
  if (arrays > 1) {
    s.arrays.assign(static_cast<std::size_t>(arrays), o.models / arrays);
    s.arrays.back() += o.models % arrays;
    s.array_order = ArrayOrder::in_turn;
    s.array_lanes = std::min(arrays, o.threads);
  }
  return o.models * batches_in_window(o, s, steady_seconds() + 0.5) / o.seconds;
}

void measure(const Options& o, const char* program) {
  struct Way {
    std::string name;
    std::function<double()> steps;
    std::vector<double> measured{};
  };
  std::vector<Way> ways;
  ways.push_back({"a process for each model", [&] { return steps_of_processes(o, program); }});
  ways.push_back({"one array", [&] { return steps_side_by_side(o, 1); }});
  if (o.models >= o.threads)
    ways.push_back({fmt::format("{} arrays on {} lanes", o.threads, o.threads),
                    [&] { return steps_side_by_side(o, o.threads); }});
  ways.push_back({fmt::format("{} arrays of one on {} lanes", o.models, o.threads),
                  [&] { return steps_side_by_side(o, o.models); }});
  for (int round = 0; round < o.rounds; ++round)
    for (Way& way : ways) way.measured.push_back(way.steps());
  fmt::print("{} x {}, batch {}{}, {} threads\n", o.models, o.network, o.batch,
             o.augment ? ", augmented" : "", o.threads);
  for (const Way& way : ways) {
    std::vector<double> ratios;
    for (std::size_t r = 0; r < way.measured.size(); ++r)
      ratios.push_back(way.measured[r] / ways[0].measured[r]);
    fmt::print("  {:<32} {:>9.1f} steps/s  {:>5.2f} of processes\n", way.name, median(way.measured),
               median(ratios));
  }
}

}  // namespace
}  // namespace tandem::bench

int main(int argc, char** argv) {
  using namespace tandem;
  bench::Options o;
  CLI::App app{"Measures several models side by side against a process for each.", "bench_models"};
  app.option_defaults()->always_capture_default();
  app.add_option("network", o.network, "mlp32 (hidden layers of 32), or a network of train_cifar");
  app.add_option("--models", o.models, "models")->check(CLI::Range(2, 256));
  app.add_option("-b,--batch-size", o.batch, "samples per batch")->check(CLI::PositiveNumber);
  app.add_option("--threads", o.threads, "threads of Tandem's process")->check(CLI::PositiveNumber);
  app.add_option("--rounds", o.rounds, "rounds, of which the median counts")->check(CLI::PositiveNumber);
  app.add_option("--seconds", o.seconds, "of each measurement")->check(CLI::PositiveNumber);
  app.add_flag("--augment,!--no-augment", o.augment, "crop and flip images");
  app.add_option("--at", o.at, "trains one model alone, and counts the steps from then on")->group("");
  return apps::run_program(app, argc, argv, [&] {
    if (o.at >= 0)
      fmt::print("{}\n", bench::batches_in_window(o, Strategy{.threads = 1}, o.at));
    else
      bench::measure(o, argv[0]);
  });
}
