// Measures real pipelines of two stages, which are threads with one core each, against one core and against
// what the simulator says. Every Program runs in turn in each round; medians over the rounds count.
//
//   period     from one update of stage 0 to the next, while the pipeline is full
//   no kernel  the share of that time in which no device executes a kernel: barriers, hops, the executor
//   idle       the share in which the device that computes longest executes no kernel: it also waits
//   simulated  the period of the same Program in the simulator, over the real one. Kernels take the seconds
//              that they take in the same round: on one core, or under pipedream, beside the other core
//   alone      the same with the seconds that kernels take alone, before all rounds
//
// The cuts are those with the shortest period of dualpipe by the layers' kernels, measured alone.
#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <tuple>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tandem/engine.h>
#include <tandem/plan/measured_layers.h>

#include "command_line.h"
#include "measure.h"
#include "training.h"

namespace tandem::bench {
namespace {
using namespace engine;

struct Options {
  std::vector<std::string> networks{"snn", "vgg16"};
  std::int64_t batch = 128;
  int rounds = 5, batches = 12;
};

struct Setting {
  const char* name;
  const char* schedule;
  bool lockstep;
  int stages;
  std::size_t measured;  // the place of the setting whose kernels' seconds it is simulated with
};
constexpr std::size_t kOneCore = 0, kPipeDreamLockstep = 1, kDualPipeLockstep = 2, kSpecTrainLockstep = 3,
                      kPipeDream = 4, kDualPipe = 5, kSpecTrain = 6;
constexpr Setting kSettings[]{
    {"one core", "plain", false, 1, kOneCore},
    {"pipedream, lockstep", "pipedream", true, 2, kPipeDreamLockstep},
    {"dualpipe, lockstep", "dualpipe", true, 2, kPipeDreamLockstep},
    {"spectrain, lockstep", "spectrain", true, 2, kPipeDreamLockstep},
    {"pipedream", "pipedream", false, 2, kPipeDream},
    {"dualpipe", "dualpipe", false, 2, kPipeDream},
    {"spectrain", "spectrain", false, 2, kPipeDream},
};

// The time in which all devices are at work: from the update of stage 0 after the first batches to the one
// before the last batches.
struct Steady {
  double begin = 0, end = 0, period = 0;
};

Steady steady_of(const Program& p, const Timeline& timeline, int batches) {
  std::map<std::int64_t, double> updated;  // when the last update of stage 0 ended, by batch
  for (const Span& s : timeline.spans)
    if (const Tag& tag = p.instruction(s.instruction).tag; tag.phase == Phase::update && tag.stage == 0) {
      double& end = updated[s.batch];
      end = std::max(end, s.end);
    }
  constexpr int kFilling = 3;
  const std::int64_t first = updated.begin()->first;
  const double begin = updated.at(first + kFilling), end = updated.at(first + batches - 1 - kFilling);
  return {begin, end, (end - begin) / (batches - 1 - 2 * kFilling)};
}

bool is_kernel(const Program& p, InstructionId s) {
  return p.lane_of(s).kind == LaneKind::compute && p.instruction(s).tag.phase != Phase::barrier;
}

// The mean seconds of each kernel in a run; what is no kernel takes what it takes alone.
IdVector<InstructionId, double> seconds_of_run(const Program& p, const Timeline& timeline,
                                               const Profile& alone) {
  IdVector<InstructionId, double> sum(p.instructions.size(), 0);
  IdVector<InstructionId, int> count(p.instructions.size(), 0);
  for (const Span& s : timeline.spans) {
    sum[s.instruction] += s.end - s.begin;
    ++count[s.instruction];
  }
  for (const InstructionId s : p.instructions.ids())
    if (const Instruction& instruction = p.instruction(s); is_kernel(p, s))
      sum[s] /= std::max(1, count[s]);
    else if (p.lane_of(s).kind == LaneKind::receive)
      sum[s] = alone.seconds(instruction, p.threads);
  return sum;
}

// The share of the time in which none of these devices executes a kernel.
double share_without_kernels(const Program& p, const Timeline& timeline, const Steady& steady,
                             const std::set<int>& devices) {
  std::vector<std::pair<double, double>> kernels;
  for (const Span& s : timeline.spans)
    if (is_kernel(p, s.instruction) && devices.contains(p.lane_of(s.instruction).device))
      kernels.emplace_back(std::max(s.begin, steady.begin), std::min(s.end, steady.end));
  std::ranges::sort(kernels);
  double without = 0, until = steady.begin;
  for (const auto& [begin, end] : kernels) {
    without += std::max(0.0, std::min(begin, steady.end) - until);
    until = std::max(until, end);
  }
  return (without + std::max(0.0, steady.end - until)) / (steady.end - steady.begin);
}

Strategy strategy_of(const Setting& setting) {
  return {.stages = setting.stages,
          .schedule = setting.schedule,
          .lockstep = setting.lockstep,
          .optimizer = SgdOptions{.momentum = 0.9},
          .threads = 1};
}

std::vector<std::string> cuts_of_dualpipe(const Graph& graph, const StateDict& state, std::int64_t batch) {
  const Strategy strategy = strategy_of(kSettings[kDualPipe]);
  DrawnHost host(batch);
  Profile profile;
  profile.measure(layers_program(graph, strategy), cpu_kernels(), host, state);
  return measured_cuts(graph, strategy, profile);
}

// A Program that runs whenever it is its turn.
class Contestant {
 public:
  Contestant(const Setting& setting, const Graph& graph, const StateDict& state, const Options& o,
             const std::vector<std::string>& cuts)
      : name_(setting.name), batches_(o.batches), host_(o.batch) {
    Strategy strategy = strategy_of(setting);
    if (setting.stages > 1) strategy.cuts = cuts;
    program_ = build(graph, strategy);
    kernels_.measure(program_, cpu_kernels(), host_, state);
    alone_ = simulated_period();
    session_ = std::make_unique<Session>(program_, thread_comms(program_.ranks()), host_,
                                         SessionOptions{.spans = 100'000});
    session_->load(state);
  }

  // Runs for a round. Its Program is simulated with the seconds that kernels took in a run with one compute
  // lane per core, which may be this one.
  void run(bool counts, const Contestant& measured) {
    session_->run(batch_, batches_);
    batch_ += batches_;
    const Timeline timeline = session_->timeline();
    if (&measured == this) seconds_ = seconds_of_run(program_, timeline, kernels_);
    if (!counts) return;
    kernels_.take(measured.program_, measured.seconds_);
    simulated_.push_back(simulated_period());
    const Steady steady = steady_of(program_, timeline, batches_);
    periods_.push_back(steady.period);
    std::set<int> all;
    double least = 1;
    for (int d = 0; d < program_.devices; ++d) {
      all.insert(d);
      least = std::min(least, share_without_kernels(program_, timeline, steady, {d}));
    }
    without_.push_back(share_without_kernels(program_, timeline, steady, all));
    idle_.push_back(least);
  }

  const char* name() const { return name_; }
  const std::vector<double>& periods() const { return periods_; }
  const std::vector<double>& simulated() const { return simulated_; }
  double alone() const { return alone_; }
  double without_kernels() const { return median(without_); }
  double idle() const { return median(idle_); }

  Program with_measured_costs() const { return with_costs(program_, kernels_); }

 private:
  double simulated_period() const {
    const Program program = with_measured_costs();
    SimBackend sim(program);
    engine::run(sim, batches_);
    return steady_of(program, sim.timeline(), batches_).period;
  }

  const char* name_;
  int batches_;
  Program program_;
  DrawnHost host_;
  Profile kernels_{};                          // alone, and then of the round
  IdVector<InstructionId, double> seconds_{};  // of the last round
  double alone_ = 0;
  std::unique_ptr<Session> session_;
  std::int64_t batch_ = 0;
  std::vector<double> periods_, simulated_, without_, idle_;
};

// The median over the rounds of a/b.
double ratio(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < a.size(); ++i) ratios.push_back(a[i] / b[i]);
  return median(ratios);
}

void print_stages(const Program& program) {
  std::map<int, std::pair<double, double>> stages;
  for (const InstructionId s : program.instructions.ids()) {
    if (!is_kernel(program, s)) continue;
    const auto& [tag, cost] = std::tie(program.instruction(s).tag, program.instruction(s).cost);
    auto& [forward, backward] = stages[tag.stage];
    (tag.phase == Phase::forward ? forward : backward) += cost.seconds;
  }
  for (const auto& [stage, seconds] : stages)
    fmt::print("  stage {}: F {:.1f} ms, B {:.1f} ms\n", stage, 1e3 * seconds.first, 1e3 * seconds.second);
}

void print(const std::deque<Contestant>& all) {
  print_stages(all[kPipeDreamLockstep].with_measured_costs());
  fmt::print("  {:<22} {:>9} {:>9} {:>9} {:>10} {:>10} {:>7}\n", "", "period ms", "simulated", "alone",
             "one core x", "no kernel", "idle");
  for (const Contestant& c : all)
    fmt::print("  {:<22} {:>9.1f} {:>9.3f} {:>9.3f} {:>10.2f} {:>9.1f}% {:>6.1f}%\n", c.name(),
               1e3 * median(c.periods()), ratio(c.simulated(), c.periods()), c.alone() / median(c.periods()),
               ratio(all[kOneCore].periods(), c.periods()), 100 * c.without_kernels(), 100 * c.idle());
  const Contestant &pipedream = all[kPipeDreamLockstep], &dualpipe = all[kDualPipeLockstep];
  fmt::print("  pipedream over dualpipe, lockstep: {:.2f}, simulated {:.2f}, alone {:.2f}; free: {:.2f}\n",
             ratio(pipedream.periods(), dualpipe.periods()),
             ratio(pipedream.simulated(), dualpipe.simulated()), pipedream.alone() / dualpipe.alone(),
             ratio(all[kPipeDream].periods(), all[kDualPipe].periods()));
  fmt::print("  prediction adds {:.1f} % in lockstep, {:.1f} % free\n",
             100 * (ratio(all[kSpecTrainLockstep].periods(), dualpipe.periods()) - 1),
             100 * (ratio(all[kSpecTrain].periods(), all[kDualPipe].periods()) - 1));
}

void measure(const std::string& name, const Options& o) {
  const auto net = nn::make_network(name, 10);
  net->initialize(1);
  const Graph graph = traced(*net, o.batch);
  const std::vector<std::string> cuts = cuts_of_dualpipe(graph, net->state(), o.batch);
  std::deque<Contestant> all;
  for (const Setting& setting : kSettings) all.emplace_back(setting, graph, net->state(), o, cuts);
  for (int round = 0; round <= o.rounds; ++round)
    for (std::size_t c = 0; c < all.size(); ++c)
      all[c].run(/*counts=*/round > 0, /*measured=*/all[kSettings[c].measured]);
  fmt::print("{}, batch {}, cut before {}\n", name, o.batch, fmt::join(cuts, ", "));
  print(all);
}

}  // namespace
}  // namespace tandem::bench

int main(int argc, char** argv) {
  using namespace tandem;
  CLI::App app{
      "Measures pipelines of two stages with one core each against one core, and against the simulator.",
      "bench_pipelines"};
  bench::Options o;
  app.option_defaults()->always_capture_default();
  app.add_option("networks", o.networks, "networks to measure")->check(CLI::IsMember(nn::network_names()));
  app.add_option("-b,--batch-size", o.batch, "samples per batch")->check(CLI::PositiveNumber);
  app.add_option("--rounds", o.rounds, "number of measured rounds, after one that does not count")
      ->check(CLI::PositiveNumber);
  app.add_option("--batches", o.batches, "batches of a round")->check(CLI::Range(8, 1000));
  return apps::run_program(app, argc, argv, [&] {
    prepare_teams(argv);
    for (const std::string& network : o.networks) bench::measure(network, o);
  });
}
