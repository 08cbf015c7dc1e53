// Measures how an all-reduce and a backward pass slow each other down, by the all-reduce's threads r (LIBRA,
// Fig. 1a). Two ranks are threads, with one computing thread each, and sum in memory: no link slows them
// down.
#include <cstdio>

#include <fmt/format.h>

#include <tandem/core/base/units.h>
#include <tandem/dist/data_parallel.h>
#include <tandem/dist/measured_backward.h>
#include <tandem/engine.h>
#include <tandem/ops/collective.h>

#include "all_reduced_networks.h"
#include "command_line.h"
#include "measure.h"
#include "training.h"

namespace tandem::bench {
namespace {
using namespace engine;

constexpr int kRanks = 2;
constexpr double kBytesPerGB = 1e9;

struct Options {
  std::string network = "bert-mlp";
  std::vector<int> threads{1, 2, 3, 4};
  int rounds = 5, batches = 3;
};

// What some batches tell of one number of threads.
struct Turn {
  double compute_ms, first_ms, first_beside_ms;  // of backward; of the first all-reduce, in all and beside it
};

class Contention {
 public:
  explicit Contention(const Options& o)
      : options_(o),
        net_(all_reduced_network(o.network)),
        host_(samples_per_rank(o.network)),
        graph_(traced(*net_, samples_per_rank(o.network))),
        layers_(gradient_layers(graph_, strategy_)[0]),
        session_(with_first_group(layers_.size()), thread_comms(kRanks), host_) {
    session_.load(net_->state());
    halves_ = session_.add(with_first_group(layers_.size() / 2), host_);
  }

  void measure() {
    const auto rows = options_.threads.size();
    std::vector<std::vector<Turn>> alone(rows), beside(rows);
    for (int round = 0; round < options_.rounds; ++round)
      for (std::size_t i = 0; i < rows; ++i) {
        alone[i].push_back(turn({}, options_.threads[i]));
        beside[i].push_back(turn(halves_, options_.threads[i]));
      }
    double compute_alone = 0;  // while nothing is reduced: of all turns
    for (std::size_t i = 0; i < rows; ++i)
      compute_alone += middle(alone[i], &Turn::compute_ms) / static_cast<double>(rows);
    const double all = bytes(0, layers_.size()), half = bytes(0, layers_.size() / 2);
    fmt::print("{}: backward alone {:.2f} ms; all-reduces of {:.1f} MB alone, {:.1f} MB beside backward\n",
               options_.network, compute_alone, all / 1e6, half / 1e6);
    fmt::print("{:>3} {:>12} {:>12} {:>14} {:>12} {:>14} {:>12}\n", "r", "backward ms", "slower",
               "beside it ms", "GB/s", "alone ms", "GB/s");
    for (std::size_t i = 0; i < rows; ++i) {
      const double compute = middle(beside[i], &Turn::compute_ms), first = middle(beside[i], &Turn::first_ms),
                   share = middle(beside[i], &Turn::first_beside_ms) / first,
                   only = middle(alone[i], &Turn::first_ms);
      fmt::print("{:>3} {:>12.2f} {:>+11.1f}% {:>14.2f} {:>12.2f} {:>14.2f} {:>12.2f}{}\n",
                 options_.threads[i], compute, 100 * (compute / compute_alone - 1), first,
                 half / first * kMsPerSecond / kBytesPerGB, only, all / only * kMsPerSecond / kBytesPerGB,
                 share < 0.95 ? fmt::format("  ({:.0f} % beside backward)", 100 * share) : "");
    }
  }

 private:
  // The first layers are reduced together, and the others.
  Program with_first_group(std::size_t first) const {
    Strategy s = strategy_;
    const int last = static_cast<int>(layers_.size()) - 1, end = static_cast<int>(first) - 1;
    std::vector<AllReduceGroup> groups{{0, end}};
    if (end < last) groups.push_back({end + 1, last});
    s.fusion_groups = fusion_groups(layers_, groups);
    return build(graph_, s);
  }

  Turn turn(ProgramHandle program, int threads) {
    const Program& p = session_.program(program);
    std::map<std::int64_t, int> by_channel;
    for (const Instruction& i : p.instructions)
      if (as<AllReduceOp>(i)) by_channel[i.tag.channel] = threads;
    session_.set_threads(by_channel, program);
    session_.run(0, 1, program);
    session_.measure(p.instructions.size() * static_cast<std::size_t>(options_.batches), program);
    session_.run(1, options_.batches, program);
    std::vector<Turn> turns;
    for (const BackwardSample& sample : measured_all_reduces(p, session_.timeline(0, program))) {
      const AllReduceSample& first = sample.all_reduces.at(0);
      turns.push_back({sample.compute_ms, first.beside_ms + first.alone_ms, first.beside_backward_ms});
    }
    return {middle(turns, &Turn::compute_ms), middle(turns, &Turn::first_ms),
            middle(turns, &Turn::first_beside_ms)};
  }

  static double middle(const std::vector<Turn>& turns, double Turn::*ms) {
    std::vector<double> values;
    for (const Turn& t : turns) values.push_back(t.*ms);
    return median(values);
  }
  double bytes(std::size_t first, std::size_t end) const {
    double sum = 0;
    for (std::size_t l = first; l < end; ++l) sum += layers_[l].gradient_bytes;
    return sum;
  }

  const Options& options_;
  const Strategy strategy_{.replicas = kRanks};
  const std::unique_ptr<nn::Module> net_;
  DrawnHost host_;
  const Graph graph_;
  const std::vector<GradientLayer> layers_;
  Session session_;  // its first Program reduces everything after backward
  ProgramHandle halves_;
};

}  // namespace
}  // namespace tandem::bench

int main(int argc, char** argv) {
  using namespace tandem;
  CLI::App app{
      "Measures how an all-reduce and a backward pass slow each other down, by the threads of the all-reduce.",
      "bench_contention"};
  bench::Options o;
  app.option_defaults()->always_capture_default();
  app.add_option("network", o.network, "network to measure")
      ->check(CLI::IsMember(bench::kAllReducedNetworks));
  app.add_option("--threads", o.threads, "numbers of threads")->check(CLI::Range(1, 1024))->delimiter(',');
  app.add_option("--rounds", o.rounds, "how often each number has its turn")->check(CLI::PositiveNumber);
  app.add_option("--batches", o.batches, "measured batches per turn")->check(CLI::PositiveNumber);
  return apps::run_program(app, argc, argv, [&] {
    prepare_teams(argv);
    bench::Contention(o).measure();
  });
}
