// Measures how much of the time of all-reduces data-parallel training hides, compared with what a link model
// says it can hide. Two ranks are threads, with one computing thread each and a slow link.
//
//   serial     all gradients in one all-reduce, which cannot begin before backward is over (SynEASGD)
//   overlapped one all-reduce per tensor (WFBP), or one per layer, beside backward
//   free       no link: only computing, and moving the bytes in memory
//
// Training can hide the difference between both Programs in the simulator, with the link's seconds for the
// all-reduces, and with the computing instructions scaled to take as long as measured without a link. It
// hides the measured difference.
#include <algorithm>
#include <cstdio>

#include <tandem/engine.h>

#include "command_line.h"
#include "measure.h"

using namespace tandem;
using namespace tandem::engine;
using tandem::bench::median;

namespace {

constexpr std::int64_t kBatch = 256, kWidth = 1024;
constexpr int kBatches = 12;

Graph forward_graph(nn::Module& net) {
  Graph graph;
  Trace trace(graph);
  const Tensor x = trace.input("x", {DType::f32, {kBatch / 2, kWidth}}),
               y = trace.input("y", {DType::i32, {kBatch / 2}});
  trace.result(kLossResult, cross_entropy(net(x), y));
  return graph;
}

struct Zeros : Host {
  void fill(const HostInput& in) override { std::ranges::fill(in.bytes, std::byte{0}); }
  void deliver(const HostResult&) override {}
};

double seconds_a_step(const Program& program, const StateDict& state, const LinkModel* link) {
  Zeros host;
  CommOptions options;
  if (link) options.link = *link;
  Session session(program, thread_comms(2, options), host);
  session.load(state);
  session.run(0, 3);
  const double begin = steady_seconds();
  session.run(3, kBatches);
  return (steady_seconds() - begin) / kBatches;
}

// `scale` multiplies the seconds of computing instructions; `with_link` keeps those of the all-reduces.
double predicted(const Program& program, const Profile& profile, double scale, bool with_link) {
  Program costed = with_costs(program, profile);
  for (Instruction& s : costed.instructions) {
    const bool computes = costed.lane(s.lane).kind == LaneKind::compute;
    s.cost.seconds *= computes ? scale : with_link ? 1 : 0;
  }
  SimBackend sim(costed);
  run(sim, kBatches);
  return sim.now() / kBatches;
}

using Groups = std::vector<FusionGroup>;

Groups one_group(nn::Module& net) {
  Groups groups(1);
  for (const auto& [path, tensor] : net.state()) groups[0].parameters.push_back(path);
  return groups;
}

Groups group_per_layer(nn::Module& net) {
  std::map<std::string, std::vector<std::string>> layers;
  for (const auto& [path, tensor] : net.state()) layers[path.substr(0, path.rfind('.'))].push_back(path);
  Groups groups;
  for (auto& [layer, paths] : layers) groups.push_back({std::move(paths)});
  return groups;
}

void measure_all(const std::vector<std::string>& links, int pairs) {
  nn::MlpResidual net({.in = kWidth, .hidden = kWidth, .classes = 10, .blocks = 4});
  net.initialize(1);
  const Graph graph = forward_graph(net);
  std::printf("%-14s %-12s %10s %10s %10s %10s %8s\n", "link", "all-reduce", "free ms", "serial ms",
              "overlap ms", "sim ms", "hidden");
  for (const std::string& text : links)
    for (const bool per_layer : {false, true}) {
      const LinkModel link = parse_link(text);
      const auto build_with = [&](const Groups& groups) {
        return build(graph, Strategy{.replicas = 2, .fusion_groups = groups, .link = link});
      };
      const Program serial = build_with(one_group(net));
      const Program overlapped = build_with(per_layer ? group_per_layer(net) : Groups{});
      Profile profile;
      Zeros host;
      profile.measure(overlapped, cpu_kernels(), host, net.state());
      std::vector<double> t_free, t_serial, t_overlapped;
      for (int i = 0; i < pairs; ++i) {
        t_free.push_back(seconds_a_step(overlapped, net.state(), nullptr));
        t_serial.push_back(seconds_a_step(serial, net.state(), &link));
        t_overlapped.push_back(seconds_a_step(overlapped, net.state(), &link));
      }
      const double scale = median(t_free) / predicted(overlapped, profile, 1, false);
      const double ideal = predicted(overlapped, profile, scale, true);
      const double can = predicted(serial, profile, scale, true) - ideal;
      const double hidden = (median(t_serial) - median(t_overlapped)) / can;
      std::printf("%-14s %-12s %10.2f %10.2f %10.2f %10.2f %7.0f%%\n", text.c_str(),
                  per_layer ? "per layer" : "per tensor", 1e3 * median(t_free), 1e3 * median(t_serial),
                  1e3 * median(t_overlapped), 1e3 * ideal, 100 * hidden);
    }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Measures how much of the all-reduces is hidden behind backward, of what could be hidden.",
               "bench_overlap"};
  std::vector<std::string> links{"4GB/s,20us", "2GB/s,20us", "1GB/s,20us"};
  int pairs = 7;
  app.option_defaults()->always_capture_default();
  app.add_option("--links", links, "bytes per second, and the additional time of each message");
  app.add_option("--pairs", pairs, "number of measurements in turn; their median counts")
      ->check(CLI::PositiveNumber);
  return apps::run_program(app, argc, argv, [&] {
    prepare_teams(argv);
    std::setvbuf(stdout, nullptr, _IOLBF, 0);
    measure_all(links, pairs);
  });
}
