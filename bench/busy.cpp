// Measures training steps while other processes keep the cores busy: for each network, precision and number
// of threads, the time of a step beside 0, 1, 2 and 3 busy processes.
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "command_line.h"
#include "measure.h"
#include "training.h"

namespace tandem::bench {
using namespace engine;
namespace {

struct Options {
  std::vector<std::string> networks = kNetworks;
  std::int64_t batch = 128;
  int steps = 5, rounds = 3, busy = 3;
  std::vector<int> threads{};
  int core = -1;      // to which the busy processes are bound
  int niceness = 0;   // of the training, beside busy processes of niceness 0
  bool bind = false;  // the training to core 0, as mpirun and taskset do
};

void bind_to(int core) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(static_cast<std::size_t>(core), &cores);
  if (sched_setaffinity(0, sizeof cores, &cores) != 0)
    throw Error(fmt::format("a process cannot be bound to core {}", core));
}

// Processes that compute without a pause, as long as the object exists.
class BusyProcesses {
 public:
  BusyProcesses(int count, int core) {
    for (int i = 0; i < count; ++i) {
      const pid_t child = fork();
      if (child < 0) throw Error("a busy process cannot be started");
      if (child == 0) compute(core);
      children_.push_back(child);
    }
  }
  ~BusyProcesses() {
    for (const pid_t child : children_) kill(child, SIGKILL), waitpid(child, nullptr, 0);
  }
  // Throws Error if one of them has ended: then what was measured was beside fewer.
  void require_all() const {
    for (const pid_t child : children_)
      if (waitpid(child, nullptr, WNOHANG) != 0)
        throw Error(
            "a busy process has ended: is there such a --busy-core, and may it have niceness 0 beside --nice?");
  }
  BusyProcesses(const BusyProcesses&) = delete;
  BusyProcesses& operator=(const BusyProcesses&) = delete;

 private:
  [[noreturn]] static void compute(int core) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    try {
      if (core >= 0) bind_to(core);
    } catch (const Error&) {
      _exit(EXIT_FAILURE);
    }
    if (setpriority(PRIO_PROCESS, 0, 0) != 0) _exit(EXIT_FAILURE);  // needs rights if the training is nice
    for (volatile std::uint64_t n = 0;;) n = n + 1;
  }
  std::vector<pid_t> children_;
};

void measure(const std::string& name, bool bf16, int threads, const Options& o) {
  const auto net = nn::make_network(name, 10);
  net->initialize(1);
  Strategy s{.optimizer = SgdOptions{.momentum = 0.9}, .threads = threads};
  if (bf16) s.amp = DType::bf16;
  DrawnHost host(o.batch);
  Session session(build(traced(*net, o.batch), s), {}, host);
  session.load(net->state());
  // Other processes come and go in milliseconds, so short steps are measured for half a second.
  const int steps = std::max(o.steps, static_cast<int>(0.5 / median(step_seconds(session, 3))));
  // Each round has a quiet time of its own, since the machine's speed can change within a minute.
  std::vector<double> quiet;
  std::vector<std::vector<double>> multiples(static_cast<std::size_t>(o.busy));
  for (int round = 0; round < o.rounds; ++round) {
    quiet.push_back(median(step_seconds(session, steps)));
    for (std::size_t b = 0; b < multiples.size(); ++b) {
      const BusyProcesses others(static_cast<int>(b) + 1, o.core);
      multiples[b].push_back(median(step_seconds(session, steps)) / quiet.back());
      others.require_all();
    }
  }
  fmt::print("{:<12} {:<4} {:>7} {:9.2f}", name, bf16 ? "bf16" : "f32", threads, 1e3 * median(quiet));
  for (const std::vector<double>& of_rounds : multiples) fmt::print(" {:8.2f}", median(of_rounds));
  fmt::print("\n");
  std::fflush(stdout);
}

void measure_all(const Options& o) {
  if (o.bind) bind_to(0);
  if (o.niceness > 0 && setpriority(PRIO_PROCESS, 0, o.niceness) != 0)
    throw Error(fmt::format("the niceness cannot be {}", o.niceness));
  fmt::print(
      "batch {}, medians of {}, each of at least {}; step times beside busy processes as multiples of the quiet "
      "time\n",
      o.batch, counted(o.rounds, "round"), counted(o.steps, "step"));
  fmt::print("{:<12} {:<4} {:>7} {:>9}", "network", "", "threads", "quiet ms");
  for (int busy = 1; busy <= o.busy; ++busy) fmt::print(" {:>6} +{}", "", busy);
  fmt::print("\n");
  for (const std::string& name : o.networks)
    for (const bool bf16 : {false, true})
      for (const int threads : o.threads) measure(name, bf16, threads, o);
}

}  // namespace
}  // namespace tandem::bench

int main(int argc, char** argv) {
  using namespace tandem;
  CLI::App app{"Measures training steps beside processes that keep the cores busy.", "bench_busy"};
  bench::Options o;
  o.threads = {1, default_threads()};
  app.option_defaults()->always_capture_default();
  app.add_option("networks", o.networks, "networks to measure")->check(CLI::IsMember(nn::network_names()));
  app.add_option("-b,--batch-size", o.batch, "samples per step")->check(CLI::PositiveNumber);
  app.add_option("--steps", o.steps, "measured steps at least, after two that do not count")
      ->check(CLI::PositiveNumber);
  app.add_option("--rounds", o.rounds, "how often it measures a quiet step and then each number of processes")
      ->check(CLI::PositiveNumber);
  app.add_option("--busy", o.busy, "most busy processes")->check(CLI::Range(0, 64));
  app.add_option("--busy-core", o.core, "core to which the busy processes are bound (-1: none)")
      ->check(CLI::Range(-1, 1023));
  app.add_option("--nice", o.niceness, "niceness of the training; the busy processes have 0")
      ->check(CLI::Range(0, 19));
  app.add_flag("--bind", o.bind, "bind the training to core 0, as taskset and mpirun do");
  app.add_option("--threads", o.threads, "threads of the team")->check(CLI::Range(1, 1024))->delimiter(',');
  return apps::run_program(app, argc, argv, [&] {
    prepare_teams(argv);
    bench::measure_all(o);
  });
}
