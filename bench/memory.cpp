// Measures memory plans: training steps under a budget, against steps without one, and the planners.
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include <tandem/core/base/contains.h>
#include <tandem/core/base/units.h>
#include <tandem/core/graph/state_dict.h>
#include <tandem/core/runtime/profile.h>
#include <tandem/memory/memory_planner.h>
#include <tandem/memory/memory_policies.h>
#include <tandem/plan/build.h>

#include "command_line.h"
#include "drawn_inputs.h"
#include "measure.h"
#include "report.h"
#include "training.h"

namespace tandem::bench {
namespace {
using namespace engine;

struct Options {
  std::string network = "resnet56", policy = "mu-two+";
  std::int64_t batch = 128;
  int threads = 1, rounds = 3, steps = 5, models = 1;
  std::vector<double> shares{0.5, 0.3, 0.167};
  double slowdown = 1.5;  // of a step that swaps everything, over the link
};

// The link over which the step takes so much longer if everything is swapped.
CopyLink link_for(MemoryProblem problem, double slowdown) {
  const auto ms = [&](std::string_view policy) {
    return memory_policy(policy).make(problem, std::numeric_limits<std::int64_t>::max()).cost.time_ms;
  };
  problem.link = {.bytes_per_ms = 1e6};
  const double wanted = slowdown * ms("none");
  double slow = 1e2, fast = 1e10;
  for (int i = 0; i < 60; ++i) {
    problem.link.bytes_per_ms = std::sqrt(slow * fast);
    (ms("vdnn") > wanted ? slow : fast) = problem.link.bytes_per_ms;
  }
  return problem.link;
}

// The batches of a ring overlap, so they run together, and what filling and draining take is left out.
double batch_seconds(Session& session, int steps) {
  const auto seconds = [&](int n) {
    const double begin = steady_seconds();
    session.run(1, n);
    return steady_seconds() - begin;
  };
  return (seconds(2 * steps) - seconds(steps)) / steps;
}

// Several models are a ring of arrays of one, compared with as many steps of one model alone.
void measure(const Options& o) {
  const nn::WholeNetwork net = nn::make_network(
      o.network, contains(nn::network_names(), o.network) ? "cifar" : nn::purpose_of(o.network), o.batch);
  net.module->initialize(1);
  const Graph forward = nn::traced_loss(net);
  Strategy s{.optimizer = SgdOptions{.momentum = 0.9}, .threads = o.threads};
  apps::DrawnInputs host(net);
  const Program one = build(forward, s);
  s.models = o.models;
  if (o.models > 1) s.arrays.assign(static_cast<std::size_t>(o.models), 1);
  const Program plain = build(forward, s);
  const StateDict initial =
      o.models == 1 ? net.module->state()
                    : stack_states(std::vector(static_cast<std::size_t>(o.models), net.module->state()));
  Profile profile;
  profile.measure(plain, cpu_kernels(), host, initial);
  s.profile = std::make_shared<const Profile>(profile);
  s.memory_plan = "none";
  s.copy_link = link_for(memory_plans(forward, s)[0].step.problem, o.slowdown);
  const std::int64_t state = plain.memory[0].state, above = planned_peak(plain) - state;
  fmt::print("{} x {}, batch {}, {} threads: {:.1f} MB of state, {:.1f} MB above it; link {:.2f} GB/s\n",
             o.models, o.network, o.batch, o.threads, static_cast<double>(state) / 1e6,
             static_cast<double>(above) / 1e6, s.copy_link.bytes_per_ms / 1e6);
  s.memory_plan = o.policy;
  Session unlimited(one, thread_comms(1), host, {});
  unlimited.load(net.module->state());
  unlimited.run(0, 1);
  for (const double share : o.shares) {
    s.memory_budget = state + static_cast<std::int64_t>(share * static_cast<double>(above));
    const double begin = steady_seconds();
    const Program planned = build(forward, s);
    const double build_seconds = steady_seconds() - begin;
    const auto plans = memory_plans(forward, s);
    Session limited(planned, thread_comms(1), host, {});
    limited.load(initial);
    limited.run(0, 1);
    std::vector<double> ratios, ms;
    for (int i = 0; i < o.rounds; ++i) {
      const auto seconds = [&](Session& session) {
        return o.models == 1 ? median(step_seconds(session, o.steps)) : batch_seconds(session, o.steps);
      };
      const double without = o.models * seconds(unlimited), with = seconds(limited);
      ratios.push_back(with / without);
      ms.push_back(with * kMsPerSecond);
    }
    const MemoryCost& cost = plans[0].plan.cost;
    const double none = plan_of(plans[0].step.problem, retain_all(plans[0].step.problem),
                                std::numeric_limits<std::int64_t>::max())
                            ->cost.time_ms;
    fmt::print(
        "  {:4.0f} % of it: {:.3f} of the time without a budget ({:.3f} predicted), {:.1f} ms; peak {:.1f} of {:.1f} "
        "MB{}, extent {:.3f} of the live peak; built in {:.1f} s\n",
        100 * share, median(ratios), cost.time_ms / none, median(ms),
        static_cast<double>(planned_peak(planned)) / 1e6, static_cast<double>(s.memory_budget) / 1e6,
        limited.executed_peak() == planned_peak(planned) ? ", as planned" : ", NOT as planned",
        static_cast<double>(planned_peak(planned)) / static_cast<double>(live_peak(planned)), build_seconds);
  }
}

constexpr double kWithSource = 0.2;  // of the layers

// A chain of layers, some with shortcuts.
MemoryProblem random_problem(std::mt19937_64& rng, int layers, int graphs) {
  const auto draw = [&](double least, double most) {
    return std::uniform_real_distribution<double>(least, most)(rng);
  };
  MemoryProblem p{{}, {}, {draw(1, 10) * 1e6, true}, 0};
  for (int g = 0; g < graphs; ++g) {
    MemoryGraph graph{fmt::format("graph {}", g), {}};
    const auto value = [&](std::int64_t bytes, MemoryValue::Kind kind) {
      p.values.push_back({static_cast<std::int64_t>(p.values.size()), bytes, kind});
      return static_cast<int>(p.values.size()) - 1;
    };
    std::vector<int> made{value(1'000'000, MemoryValue::Kind::input)};
    std::vector<double> ms;
    for (int l = 0; l < layers; ++l) {
      std::vector<int> in{made.back()};
      if (l > 2 && draw(0, 1) < 0.3) in.push_back(made[made.size() - 3]);
      const auto activation = [&] {
        return value(static_cast<std::int64_t>(draw(1e6, 2e7)), MemoryValue::Kind::intermediate);
      };
      if (draw(0, 1) < kWithSource) {  // backward does not read what the first of two nodes makes
        const int source = activation();
        graph.nodes.push_back({fmt::format("S{}", l), Phase::forward, draw(0.5, 5), 0, in, {source}});
        in = {source};
      }
      made.push_back(activation());
      ms.push_back(draw(0.5, 5));
      graph.nodes.push_back({fmt::format("F{}", l), Phase::forward, ms.back(), 0, in, {made.back()}});
    }
    int gradient = made.back();
    for (int l = layers; l-- > 0;) {
      const int next = value(p.values[static_cast<std::size_t>(made[static_cast<std::size_t>(l)])].bytes,
                             MemoryValue::Kind::gradient);
      std::vector<int> in{made[static_cast<std::size_t>(l)], made[static_cast<std::size_t>(l) + 1]};
      if (gradient != in[1]) in.push_back(gradient);
      graph.nodes.push_back(
          {fmt::format("B{}", l), Phase::backward, 2 * ms[static_cast<std::size_t>(l)], 0, in, {next}});
      gradient = next;
    }
    p.graphs.push_back(std::move(graph));
  }
  return p;
}

std::int64_t share_of(const MemoryProblem& p, double share) {
  const std::int64_t most = memory_policy("none").make(p, 0).cost.peak_bytes,
                     least = memory_policy("mu-two+").make(p, 0).cost.peak_bytes;
  return least + static_cast<std::int64_t>(share * static_cast<double>(most - least));
}

void plan_large() {
  std::mt19937_64 rng(1);
  for (const int graphs : {1, 2}) {
    const MemoryProblem p = random_problem(rng, 1000 / graphs, graphs);
    const std::int64_t limit = share_of(p, 0.4);
    for (const char* policy : {"checkpoint", "capuchin", "mu-two", "mu-two+"}) {
      CostedPlan plan;
      const double seconds = fastest(1, [&] { plan = memory_policy(policy).make(p, limit); });
      report(fmt::format("plan 2,000 nodes, {}, {}", graphs == 1 ? "one graph" : "a pair", policy), seconds,
             "s", 1);
      fmt::print("  {:.1f} ms{}\n", plan.cost.time_ms,
                 plan.cost.peak_bytes > limit ? ", over the limit" : "");
    }
  }
}

// How far mu-two+ is from the optimum, and how long the search for that takes. Some limits are below what
// mu-two+ needs.
void gaps(int count, const std::vector<int>& layers) {
  std::mt19937_64 rng(2);
  for (int graphs = 1; graphs <= 2; ++graphs) {
    std::vector<double> all, searches;
    int unknown = 0, impossible = 0, infeasible = 0;  // the last: for mu-two+ alone
    while (std::ssize(all) + unknown < count) {
      const MemoryProblem p = random_problem(rng, layers.at(static_cast<std::size_t>(graphs) - 1), graphs);
      const std::int64_t limit = share_of(p, std::uniform_real_distribution<double>(-0.1, 0.9)(rng));
      const double begin = steady_seconds();
      try {
        const MemoryCost best = memory_policy("optimal").make(p, limit).cost;
        searches.push_back(steady_seconds() - begin);
        const MemoryCost ours = memory_policy("mu-two+").make(p, limit).cost;
        if (best.peak_bytes > limit)
          ++impossible;
        else if (ours.peak_bytes > limit)
          ++infeasible;
        else
          all.push_back(ours.time_ms / best.time_ms - 1);
      } catch (const Error&) {
        ++unknown;
      }
    }
    double sum = 0;
    for (const double gap : all) sum += gap;
    report(
        fmt::format("mu-two+ above optimal, {} {} of {} ({} more without optimum)", all.size(),
                    graphs == 1 ? "chains" : "pairs", layers[static_cast<std::size_t>(graphs) - 1], unknown),
        100 * sum / static_cast<double>(all.size()), "%", 2);
    fmt::print(
        "  at most {:.1f} %; {} more fit by optimal alone, {} by neither; the search for the optimum takes "
        "{:.2f} s at most, {:.3f} s in the median\n",
        100 * std::ranges::max(all), infeasible, impossible, std::ranges::max(searches), median(searches));
  }
}

// Hill climbing from decisions that are drawn again and again, for so many seconds.
class Restarts {
 public:
  Restarts(const MemoryProblem& p, std::int64_t limit)
      : p_(p), limit_(limit), planner_(p), candidates_(candidates_of(p)), apart_(read_apart(p)) {
    if (p.can_copy()) treatments_.push_back(Treatment::swap);
  }

  PlanRank run(double seconds) {
    PlanRank best = kWorst;
    for (end_ = steady_seconds() + seconds; steady_seconds() < end_; ++restarts_) {
      start();
      while (climb() && steady_seconds() < end_) {
      }
      best = std::min(best, rank_);
    }
    return best;
  }
  int restarts() const { return restarts_; }

 private:
  std::size_t draw(std::size_t n) { return std::uniform_int_distribution<std::size_t>(0, n - 1)(rng_); }
  void start() {
    now_ = retain_all(p_);
    const std::size_t share = draw(4);  // of values that stay, in quarters
    for (const int v : candidates_)
      if (draw(4) >= share) now_.values[static_cast<std::size_t>(v)] = treatments_[draw(treatments_.size())];
    for (int g = 0; g < std::ssize(now_.forward_before); ++g) {
      auto& before = now_.forward_before[static_cast<std::size_t>(g)];
      const int forward = p_.graphs[static_cast<std::size_t>(p_.next_in_ring(g))].forward_nodes();
      for (int& b : before) b = static_cast<int>(draw(static_cast<std::size_t>(forward) + 1));
      std::ranges::sort(before);
    }
    rank_ = kWorst;
    try_plan(now_);
  }
  bool try_plan(const MemoryDecisions& d) {
    const auto plan = planner_.plan(d, limit_, rank_);
    if (!plan) return false;
    now_ = d;
    rank_ = rank_of(plan->cost, limit_);
    return true;
  }
  bool change(int v, Treatment t) {
    MemoryDecisions d = now_;
    return std::exchange(d.values[static_cast<std::size_t>(v)], t) != t && try_plan(d);
  }
  // Tries each change of one decision, in a drawn order. Returns whether one helped.
  bool climb() {
    bool any = false;
    std::ranges::shuffle(candidates_, rng_);
    for (const int v : candidates_)
      for (const Treatment t : treatments_) any = change(v, t) || any;
    for (const int v : apart_)
      for (const Treatment t : {Treatment::recompute_each, Treatment::recompute_in_backward})
        any = change(v, t) || any;
    for (std::size_t i = 0; p_.is_ring() && i < candidates_.size(); ++i) {
      MemoryDecisions d = now_;
      auto& before = d.forward_before[draw(d.forward_before.size())];
      const int more = draw(2) == 0 ? 1 : -1;
      for (std::size_t b = draw(before.size()); b < before.size(); ++b)
        before[b] = std::max(0, before[b] + more);
      for (std::size_t b = 1; b < before.size(); ++b) before[b] = std::max(before[b], before[b - 1]);
      any = try_plan(d) || any;
    }
    return any;
  }

  const MemoryProblem& p_;
  std::int64_t limit_;
  MemoryPlanner planner_;
  std::vector<int> candidates_, apart_;
  std::vector<Treatment> treatments_{Treatment::retain, Treatment::recompute, Treatment::recompute_and_keep};
  MemoryDecisions now_;
  PlanRank rank_ = kWorst;
  double end_ = 0;
  int restarts_ = 0;
  std::mt19937_64 rng_{4};
};

// How much longer mu-two+'s plan takes than the best of these.
void compare_restarts(const std::string& name, const MemoryProblem& p, std::int64_t limit, double seconds) {
  const MemoryCost ours = memory_policy("mu-two+").make(p, limit).cost;
  Restarts search(p, limit);
  const PlanRank theirs = search.run(seconds);
  const bool both_fit = ours.peak_bytes <= limit && theirs.first == 0;
  fmt::print("{}: mu-two+ {:.2f} ms{}, {:.0f} s of {} restarts {:.2f} ms{}{}\n", name, ours.time_ms,
             ours.peak_bytes > limit ? ", over the limit" : "", seconds, search.restarts(), theirs.second,
             theirs.first > 0 ? ", over the limit" : "",
             both_fit ? fmt::format("; {:+.2f} %", 100 * (ours.time_ms / theirs.second - 1)) : "");
}
void compare_restarts(const std::string& file, const std::vector<double>& shares, double seconds) {
  const MemoryProblem p = read_memory_problem(file);
  const std::int64_t whole = memory_policy("none").make(p, 0).cost.peak_bytes - p.static_bytes;
  for (const double share : shares)
    compare_restarts(fmt::format("{}, {:.0f} %", file, 100 * share), p,
                     p.static_bytes + static_cast<std::int64_t>(share * static_cast<double>(whole)), seconds);
}
void compare_restarts(int count, double seconds) {
  std::mt19937_64 rng(5);
  for (int i = 0; i < count; ++i) {
    const int graphs = 1 + i % 2, layers = std::uniform_int_distribution(50, 200)(rng) / graphs;
    const MemoryProblem p = random_problem(rng, layers, graphs);
    const std::int64_t limit = share_of(p, std::uniform_real_distribution<double>(0, 0.9)(rng));
    compare_restarts(fmt::format("{} of {} layers", graphs == 1 ? "a graph" : "a pair", layers), p, limit,
                     seconds);
  }
}

// How often another policy's plan is faster than mu-two+'s, for graphs of 100 to 400 nodes.
void compare_policies(int count) {
  std::mt19937_64 rng(3);
  const MemoryPolicy& ours = memory_policy("mu-two+");
  int faster = 0, alone_infeasible = 0;
  double most = 0, slowest = 0;
  std::string by;
  for (int i = 0; i < count; ++i) {
    const int graphs = 1 + i % 2, layers = std::uniform_int_distribution(50, 200)(rng) / graphs;
    const MemoryProblem p = random_problem(rng, layers, graphs);
    const std::int64_t limit = share_of(p, std::uniform_real_distribution<double>(0, 0.9)(rng));
    const double begin = steady_seconds();
    const CostedPlan mine = ours.make(p, limit);
    slowest = std::max(slowest, steady_seconds() - begin);
    bool behind = false;
    for (const MemoryPolicy& other : memory_policies()) {
      if (other.name == ours.name || other.name == "optimal" || other.name == "checkmate") continue;
      const MemoryCost cost = other.make(p, limit).cost;
      if (cost.peak_bytes > limit) continue;
      if (mine.cost.peak_bytes > limit) ++alone_infeasible;
      if (const double gap = mine.cost.time_ms / cost.time_ms - 1; gap > 1e-9) {
        behind = true;
        if (gap > most) most = gap, by = other.name;
      }
    }
    faster += behind;
  }
  fmt::print(
      "{} graphs and pairs of 100 to 400 nodes: another policy is faster for {} ({:.2f} % at most{}), and fits "
      "{} times where mu-two+ does not; mu-two+ plans for {:.2f} s at most\n",
      count, faster, 100 * most, by.empty() ? "" : ", " + by, alone_infeasible, slowest);
}

}  // namespace
}  // namespace tandem::bench

int main(int argc, char** argv) {
  CLI::App app{"Measures training within a memory budget, and the planners of memory.", "bench_memory"};
  tandem::bench::Options o;
  int count = 200, compared = 0;
  double restarts = 0;
  std::string file;
  bool large = false;
  std::vector<int> layers{6, 2};
  app.add_option("network", o.network, "network to train")->capture_default_str();
  app.add_option("-b,--batch-size", o.batch)->capture_default_str();
  app.add_option("--models", o.models, "in a ring: one's backward beside the next one's forward")
      ->check(CLI::Range(1, 16))
      ->capture_default_str();
  app.add_option("--threads", o.threads)->capture_default_str();
  app.add_option("--rounds", o.rounds)->capture_default_str();
  app.add_option("--steps", o.steps)->capture_default_str();
  app.add_option("--policy", o.policy)->capture_default_str();
  app.add_option("--shares", o.shares, "of the bytes above state")->delimiter(',')->capture_default_str();
  app.add_option("--slowdown", o.slowdown, "of swapping everything, which sets the link")
      ->capture_default_str();
  app.add_option("--gaps", count, "random graphs to compare with the optimum; 0: none")
      ->capture_default_str();
  app.add_option("--layers", layers, "of these graphs: of one alone, of each of a pair")
      ->delimiter(',')
      ->expected(2)
      ->capture_default_str();
  app.add_option("--compare", compared, "random graphs of 100 to 400 nodes to compare all policies on")
      ->capture_default_str();
  app.add_option(
         "--restarts", restarts,
         "seconds of hill climbing from random decisions to compare mu-two+ with, on each of the graphs "
         "of --compare, and for --shares of --graph; 0: none")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--graph", file, "a memory problem that --dump-profile has written, for --restarts")
      ->needs("--restarts");
  app.add_flag("--large", large, "plan 2,000 nodes");
  return tandem::apps::run_program(app, argc, argv, [&] {
    if (o.rounds > 0) tandem::bench::measure(o);
    if (large) tandem::bench::plan_large();
    if (count > 0) tandem::bench::gaps(count, layers);
    if (compared > 0) tandem::bench::compare_policies(compared);
    if (restarts > 0) tandem::bench::compare_restarts(compared, restarts);
    if (restarts > 0 && !file.empty()) tandem::bench::compare_restarts(file, o.shares, restarts);
  });
}
