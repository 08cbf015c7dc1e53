// Measures the backward passes of all-reduce policies beside one another. Two ranks are threads, with one
// computing thread each. Their link moves all gradients in the time that backward takes alone, and a message
// takes 1/300 of it to arrive.
//
// As in a training run, the first batches are measured and fitted (LIBRA, Algorithm 2). All policies plan
// from that fit, and then train in turn.
#include <cmath>
#include <cstdio>
#include <map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <tandem/dist/data_parallel.h>
#include <tandem/dist/measured_backward.h>
#include <tandem/engine.h>
#include <tandem/train/all_reduce_tuning.h>

#include "command_line.h"
#include "measure.h"
#include "output_file.h"
#include "training.h"

namespace tandem::bench {
using namespace engine;
namespace {

constexpr int kRanks = 2;
constexpr double kMsPerSecond = 1e3, kHopsPerBackward = 300;

// The matrices of BERT-Base's twelve blocks, one after another, on flat images.
struct BertMatrices final : nn::Module {
  nn::Linear stem{*this, "stem", {.in = 3072, .out = 768}};
  nn::ModuleList<nn::Linear> layers{*this, "layers"};
  nn::Linear head{*this, "head", {.in = 768, .out = 10}};
  BertMatrices() {
    for (int block = 0; block < 12; ++block) {
      for (int i = 0; i < 4; ++i) layers.add({.in = 768, .out = 768});
      layers.add({.in = 768, .out = 3072});
      layers.add({.in = 3072, .out = 768});
    }
  }
  Tensor forward(const Tensor& x) override {
    Tensor h = relu(stem(flatten(x)));
    for (nn::Linear& layer : layers) h = relu(layer(h));
    return head(h);
  }
};

const std::map<std::string, std::int64_t> kBatches{
    {"resnet56", 64}, {"vgg16", 32}, {"bert-mlp", 64}};  // per rank

std::unique_ptr<nn::Module> network(const std::string& name) {
  std::unique_ptr<nn::Module> net;
  if (name == "bert-mlp")
    net = std::make_unique<BertMatrices>();
  else
    net = nn::make_network(name, 10);
  net->initialize(1);
  return net;
}

struct Options {
  std::vector<std::string> networks{"resnet56", "vgg16", "bert-mlp"};
  std::vector<int> threads{1, 2};
  int rounds = 5, batches = 2;
  std::string json;
};

struct Measured {
  std::string policy;
  double predicted_ms, measured_ms, compute_ms, residual_ms;
};

// One network on two ranks.
class Job {
 public:
  Job(const std::string& name, const Options& o)
      : options_(o), net_(network(name)), batch_(kBatches.at(name)), graph_(traced(*net_, batch_)) {
    strategy_.replicas = kRanks;
    layers_ = gradient_layers(graph_, strategy_)[0];
    strategy_.link = link();
  }

  std::vector<Measured> measure() {
    DrawnHost host(batch_);
    Session session(with({}), thread_comms(kRanks, {.link = strategy_.link}), host);
    session.load(net_->state());
    const AllReduceProfile profile = measured_profile(session, host);
    const AllReduceProblem problem = problem_of(profile, kRanks, options_.threads);
    fmt::print("fit: backward {:.2f} ms, startup {:.3f} ms;", profile.compute_ms(), problem.costs.startup_ms);
    for (const ThreadRates& r : problem.costs.choices)
      fmt::print(" {}: computation at {:.3f}, {:.4g} bytes per ms beside it, {:.4g} alone;",
                 counted(r.threads, "thread"), r.compute_rate, r.overlapped, r.alone);
    fmt::print("\n");
    std::vector<Measured> results;
    std::vector<ProgramHandle> programs;
    for (const AllReducePolicy& policy : all_reduce_policies()) {
      if (policy.name == "mg-cf") continue;  // only simulated
      const AllReducePlan plan = policy.plan(problem);
      results.push_back({std::string(policy.name), plan.predicted.backward_ms, 0, 0, 0});
      programs.push_back(session.add(with(fusion_groups(layers_, plan.groups)), host));
    }
    std::vector<std::vector<double>> ms(programs.size());
    for (int round = 0; round < options_.rounds; ++round)
      for (std::size_t i = 0; i < programs.size(); ++i) {
        const std::size_t turn = (i + static_cast<std::size_t>(round)) % programs.size();
        ms[turn].push_back(backward_ms(session, programs[turn]));
      }
    for (std::size_t i = 0; i < results.size(); ++i) results[i].measured_ms = median(ms[i]);
    return results;
  }
  const LinkModel& link_model() const { return strategy_.link; }
  double alone_ms() const { return alone_ms_; }

 private:
  Program with(std::vector<FusionGroup> groups) const {
    Strategy s = strategy_;
    s.fusion_groups = std::move(groups);
    return build(graph_, s);
  }

  // Measures backward alone, on ranks that are not slowed down.
  LinkModel link() {
    DrawnHost host(batch_);
    const auto all = fusion_groups({layers_}, "se");
    Session session(with(all), thread_comms(kRanks), host);
    session.load(net_->state());
    session.run(0, 2);
    session.measure(100'000);
    session.run(2, 9);
    double bytes = 0;
    for (const GradientLayer& l : measured_backward(session.program(), session.timeline(), layers_).layers)
      alone_ms_ += l.compute_ms, bytes += l.gradient_bytes;
    const double seconds = alone_ms_ / kMsPerSecond;
    return {.latency = seconds / kHopsPerBackward, .bandwidth = bytes / seconds};  // ĉ = c for two ranks
  }

  AllReduceProfile measured_profile(Session& session, Host& host) const {
    AllReduceReport key{.ranks = kRanks, .link = strategy_.link};
    key.stages.emplace_back().profile.layers = layers_;
    AllReduceTuning tuning(session, host,
                           [&](const std::vector<FusionGroup>& groups) { return with(groups); },
                           std::move(key), {.threads = options_.threads, .drift = {}});
    for (std::int64_t batch = 0; !tuning.is_planned();) batch += tuning.run(batch, kMostTuningBatches);
    return tuning.report().stages[0].profile;
  }

  // After one batch that does not count.
  double backward_ms(Session& session, ProgramHandle program) const {
    session.run(0, 1, program);
    session.measure(session.program(program).instructions.size() * static_cast<std::size_t>(options_.batches),
                    program);
    session.run(1, options_.batches, program);
    return measured_backward_ms(session.program(program), session.timeline(0, program));
  }

  const Options& options_;
  const std::unique_ptr<nn::Module> net_;
  const std::int64_t batch_;
  const Graph graph_;
  Strategy strategy_{};
  std::vector<GradientLayer> layers_;
  double alone_ms_ = 0;
};

void measure_all(const Options& o) {
  nlohmann::ordered_json json;
  std::map<std::string, double> log_ratios;  // of libra's time to a policy's, summed over the networks
  std::vector<double> errors;
  for (const std::string& name : o.networks) {
    Job job(name, o);
    const std::vector<Measured> results = job.measure();
    const double libra = results.back().measured_ms;
    fmt::print("{}: backward alone {:.2f} ms, link {}\n{:<10} {:>12} {:>12} {:>8} {:>16}\n", name,
               job.alone_ms(), to_string(job.link_model()), "policy", "predicted ms", "measured ms", "error",
               "libra's share");
    for (const Measured& m : results) {
      const double error = m.measured_ms / m.predicted_ms - 1;
      errors.push_back(std::abs(error));
      log_ratios[m.policy] += std::log(libra / m.measured_ms);
      fmt::print("{:<10} {:>12.2f} {:>12.2f} {:>+7.1f}% {:>16.3f}\n", m.policy, m.predicted_ms, m.measured_ms,
                 100 * error, libra / m.measured_ms);
      json[name].push_back(
          {{"policy", m.policy}, {"predicted_ms", m.predicted_ms}, {"measured_ms", m.measured_ms}});
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
  if (!o.json.empty()) apps::write_file(o.json, json.dump(1) + "\n");
}

}  // namespace
}  // namespace tandem::bench

int main(int argc, char** argv) {
  using namespace tandem;
  CLI::App app{"Measures the backward passes of all-reduce policies in turn, on two ranks with a slow link.",
               "bench_policies"};
  bench::Options o;
  app.option_defaults()->always_capture_default();
  app.add_option("networks", o.networks, "networks to measure")
      ->check(CLI::IsMember(std::set<std::string>{"resnet56", "vgg16", "bert-mlp"}));
  app.add_option("--threads", o.threads, "numbers of threads that LIBRA chooses from")
      ->check(CLI::Range(1, 1024))
      ->delimiter(',');
  app.add_option("--rounds", o.rounds, "how often each policy has its turn")->check(CLI::PositiveNumber);
  app.add_option("--batches", o.batches, "measured batches per turn")->check(CLI::PositiveNumber);
  app.add_option("--json", o.json, "write the times here");
  return apps::run_program(app, argc, argv, [&] {
    prepare_teams(argv);
    bench::measure_all(o);
  });
}
