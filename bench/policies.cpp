// Measures the backward passes of all-reduce policies in turn. Ranks are threads, with one computing thread
// each. The link between two of them moves all gradients in the time that backward takes alone, and a message
// takes 1/300 of it to arrive.
//
// As in a training run, the first batches are measured and fitted (LIBRA, Algorithm 2). All policies plan
// from that fit, and then train in turn.
#include <sched.h>

#include <cmath>
#include <cstdio>
#include <map>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <tandem/core/base/units.h>
#include <tandem/dist/data_parallel.h>
#include <tandem/dist/measured_backward.h>
#include <tandem/engine.h>
#include <tandem/train/all_reduce_tuning.h>

#include "all_reduced_networks.h"
#include "command_line.h"
#include "measure.h"
#include "output_file.h"
#include "training.h"

namespace tandem::bench {
using namespace engine;
namespace {

constexpr double kHopsPerBackward = 300;

struct Options {
  std::vector<std::string> networks = kAllReducedNetworks;
  std::vector<int> threads{1, 2};
  int ranks = 2, fit_at = 0, rounds = 5, batches = 2;
  std::string collective = "auto", json;
};

struct Measured {
  std::string policy{};
  double predicted_ms = 0, measured_ms = 0, compute_ms = 0, communication_ms = 0;
};

// The medians over the batches of a timeline.
Measured measured(const Program& p, const Timeline& timeline) {
  Measured m{.measured_ms = measured_backward_ms(p, timeline)};
  std::vector<double> compute, communication;
  for (const BackwardSample& sample : measured_all_reduces(p, timeline)) {
    compute.push_back(sample.compute_ms);
    communication.push_back(0);
    for (const AllReduceSample& s : sample.all_reduces) communication.back() += s.beside_ms + s.alone_ms;
  }
  m.compute_ms = median(compute);
  m.communication_ms = median(communication);
  return m;
}

// One network, trained by some ranks.
class Job {
 public:
  Job(const std::string& name, int ranks, const Options& o)
      : options_(o),
        net_(all_reduced_network(name)),
        batch_(samples_per_rank(name)),
        graph_(traced(*net_, batch_)) {
    strategy_.replicas = ranks;
    strategy_.collective = parse_collective(o.collective);
    layers_ = gradient_layers(graph_, strategy_)[0];
    strategy_.link = link();
  }

  const LinkModel& link_model() const { return strategy_.link; }
  double alone_ms() const { return alone_ms_; }
  void set_link(const LinkModel& link) { strategy_.link = link; }

  // What the first batches of a run tell.
  AllReduceProfile fit() {
    DrawnHost host(batch_);
    Session session(with({}), comms(), host);
    session.load(net_->state());
    AllReduceTuning tuning(session, host,
                           [&](const std::vector<FusionGroup>& groups) { return with(groups); },
                           all_reduce_key(graph_, strategy_, static_cast<double>(batch_)),
                           {.policy = "libra", .threads = options_.threads, .drift = {}});
    for (std::int64_t batch = 0; !tuning.is_planned();) batch += tuning.run(batch, kMostTuningBatches);
    return tuning.report().devices[0].profile;
  }

  std::vector<Measured> measure(const AllReduceProblem& problem) {
    DrawnHost host(batch_);
    Session session(with({}), comms(), host);
    session.load(net_->state());
    std::vector<Measured> results;
    std::vector<ProgramHandle> programs;
    for (const AllReducePolicy& policy : all_reduce_policies()) {
      if (policy.name == "mg-cf") continue;  // only simulated
      const AllReducePlan plan = policy.plan(problem);
      results.push_back({.policy = std::string(policy.name), .predicted_ms = plan.predicted.backward_ms});
      programs.push_back(session.add(with(fusion_groups(layers_, plan.groups)), host));
    }
    std::vector<std::vector<Measured>> turns(programs.size());
    for (int round = 0; round < options_.rounds; ++round)
      for (std::size_t i = 0; i < programs.size(); ++i) {
        const std::size_t turn = (i + static_cast<std::size_t>(round)) % programs.size();
        turns[turn].push_back(take_turn(session, programs[turn]));
      }
    for (std::size_t i = 0; i < results.size(); ++i)
      for (const auto ms : {&Measured::measured_ms, &Measured::compute_ms, &Measured::communication_ms}) {
        std::vector<double> values;
        for (const Measured& m : turns[i]) values.push_back(m.*ms);
        results[i].*ms = median(values);
      }
    return results;
  }

 private:
  Program with(std::vector<FusionGroup> groups) const {
    Strategy s = strategy_;
    s.fusion_groups = std::move(groups);
    return build(graph_, s);
  }
  std::vector<std::unique_ptr<Comm>> comms() const {
    return thread_comms(strategy_.replicas, {.collective = strategy_.collective, .link = strategy_.link});
  }

  // Measures backward alone, on ranks that are not slowed down. Returns the link that moves the gradients of
  // two ranks in that time.
  LinkModel link() {
    DrawnHost host(batch_);
    Session session(with(fusion_groups({layers_}, "se")), thread_comms(strategy_.replicas), host);
    session.load(net_->state());
    session.run(0, 2);
    session.measure(session.program().instructions.size() * 9);
    session.run(2, 9);
    double bytes = 0;
    for (const GradientLayer& l : measured_backward(session.program(), session.timeline(), layers_).layers)
      alone_ms_ += l.compute_ms, bytes += l.gradient_bytes;
    const double seconds = alone_ms_ / kMsPerSecond;
    return {.latency = seconds / kHopsPerBackward, .bandwidth = bytes / seconds};
  }

  // After one batch that does not count.
  Measured take_turn(Session& session, ProgramHandle program) const {
    session.run(0, 1, program);
    session.measure(session.program(program).instructions.size() * static_cast<std::size_t>(options_.batches),
                    program);
    session.run(1, options_.batches, program);
    return measured(session.program(program), session.timeline(0, program));
  }

  const Options& options_;
  const std::unique_ptr<nn::Module> net_;
  const std::int64_t batch_;
  const Graph graph_;
  Strategy strategy_{};
  std::vector<GradientLayer> layers_;
  double alone_ms_ = 0;
};

// What is planned for `ranks` from a fit on `fitted` ranks.
AllReduceProblem problem_on(const AllReduceProfile& profile, int fitted, int ranks, const Options& o) {
  AllReduceProblem problem = problem_of(profile, fitted, o.threads);
  const CollectiveAlgorithm algorithm = parse_collective(o.collective);
  const CollectiveHops from = hops_of(algorithm, fitted), to = hops_of(algorithm, ranks);
  problem.costs.startup_ms *= to.startup / from.startup;
  problem.costs.sent_per_byte *= to.sent_per_byte / from.sent_per_byte;
  return problem;
}

// Leaves half as many cores as ranks to what is started from now on.
void use_cores_for(int ranks) {
  cpu_set_t allowed, fewer;
  CPU_ZERO(&fewer);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) throw Error("the cores cannot be counted");
  for (int core = 0, left = std::max(1, ranks / 2); core < CPU_SETSIZE && left > 0; ++core)
    if (CPU_ISSET(core, &allowed)) CPU_SET(core, &fewer), --left;
  if (sched_setaffinity(0, sizeof fewer, &fewer) != 0) throw Error("the cores cannot be chosen");
}

std::vector<Measured> measure(const std::string& name, const Options& o) {
  const int fitted = o.fit_at ? o.fit_at : o.ranks;
  if (o.fit_at) use_cores_for(fitted);
  Job job(name, fitted, o);
  const AllReduceProfile profile = job.fit();
  const AllReduceProblem problem = problem_on(profile, fitted, o.ranks, o);
  fmt::print("{}, {} ranks{}: backward alone {:.2f} ms, link {}\n", name, o.ranks,
             o.fit_at ? fmt::format(", fitted on {}", fitted) : "", job.alone_ms(),
             to_string(job.link_model()));
  fmt::print("backward of the fit {:.2f} ms, startup {:.3f} ms", profile.compute_ms(),
             problem.costs.startup_ms);
  for (const ThreadRates& r : problem.costs.choices)
    fmt::print("; {}: computation beside at {:.3f}, {:.4g} bytes per ms beside it, {:.4g} alone",
               counted(r.threads, "thread"), r.compute_rate, r.overlapped, r.alone);
  fmt::print("\n");
  if (!o.fit_at) return job.measure(problem);
  use_cores_for(o.ranks);
  Job other(name, o.ranks, o);
  other.set_link(job.link_model());
  return other.measure(problem);
}

void measure_all(const Options& o) {
  nlohmann::ordered_json results;
  std::map<std::string, double> log_ratios;  // of libra's time to a policy's, summed over the networks
  std::vector<double> errors;
  for (const std::string& name : o.networks) {
    const std::vector<Measured> all = measure(name, o);
    const double libra = all.back().measured_ms;
    fmt::print("{:<10} {:>12} {:>12} {:>8} {:>12} {:>12} {:>16}\n", "policy", "predicted ms", "measured ms",
               "error", "computation", "all-reduces", "libra's share");
    for (const Measured& m : all) {
      const double error = m.measured_ms / m.predicted_ms - 1;
      errors.push_back(std::abs(error));
      log_ratios[m.policy] += std::log(libra / m.measured_ms);
      fmt::print("{:<10} {:>12.2f} {:>12.2f} {:>+7.1f}% {:>12.2f} {:>12.2f} {:>16.3f}\n", m.policy,
                 m.predicted_ms, m.measured_ms, 100 * error, m.compute_ms, m.communication_ms,
                 libra / m.measured_ms);
      results.push_back({{"network", fmt::format("{}, {} ranks", name, o.ranks)},
                         {"policy", m.policy},
                         {"predicted_ms", m.predicted_ms},
                         {"measured_ms", m.measured_ms},
                         {"compute_ms", m.compute_ms},
                         {"communication_ms", m.communication_ms}});
    }
    fmt::print("\n");
    std::fflush(stdout);
  }
  double sum = 0;
  for (const double e : errors) sum += e;
  fmt::print("libra's share, geometric mean over the networks:");
  for (const auto& [policy, logs] : log_ratios)
    fmt::print(" {} {:.3f}", policy, std::exp(logs / static_cast<double>(o.networks.size())));
  fmt::print("\npredictions: {:.1f} % off on average, {:.1f} % at worst\n",
             100 * sum / static_cast<double>(errors.size()), 100 * std::ranges::max(errors));
  if (o.json.empty()) return;
  const nlohmann::ordered_json j{{"source", fmt::format("bench_policies, {}", counted(o.ranks, "rank"))},
                                 {"results", results}};
  apps::write_json(o.json, "measured times", j.dump(1) + "\n");
}

}  // namespace
}  // namespace tandem::bench

int main(int argc, char** argv) {
  using namespace tandem;
  CLI::App app{"Measures the backward passes of all-reduce policies in turn, on ranks with a slow link.",
               "bench_policies"};
  bench::Options o;
  app.option_defaults()->always_capture_default();
  app.add_option("networks", o.networks, "networks to measure")
      ->check(CLI::IsMember(bench::kAllReducedNetworks));
  app.add_option("--threads", o.threads, "numbers of threads that LIBRA chooses from")
      ->check(CLI::Range(1, 1024))
      ->delimiter(',');
  app.add_option("--ranks", o.ranks, "ranks, which are threads")->check(CLI::Range(2, 16));
  app.add_option("--fit-at", o.fit_at,
                 "fit on this many ranks instead, with two ranks per core; 0: as --ranks")
      ->check(CLI::IsMember(std::set<int>{0, 2, 4, 8}));
  app.add_option("--collective", o.collective, "direct, ring, or auto");
  app.add_option("--rounds", o.rounds, "how often each policy has its turn")->check(CLI::PositiveNumber);
  app.add_option("--batches", o.batches, "measured batches per turn")->check(CLI::PositiveNumber);
  app.add_option("--json", o.json, "write the times here, as tandem reproduce libra --measured reads them");
  return apps::run_program(app, argc, argv, [&] {
    prepare_teams(argv);
    apps::require_replaceable("--json", o.json, "measured times");
    bench::measure_all(o);
  });
}
