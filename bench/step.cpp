// Measures whole training steps on drawn inputs: their time, their share of the machine's arithmetic,
// and the sum of their kernels' times, each run by itself.
#include <algorithm>

#include <fmt/format.h>

#include <tandem/core/base/contains.h>
#include <tandem/engine.h>
#include <tandem/plan/dense_tables.h>

#include "ceilings.h"
#include "command_line.h"
#include "drawn_inputs.h"
#include "kernel_alone.h"
#include "measure.h"
#include "training.h"

namespace tandem::bench {
using namespace engine;
namespace {

struct Options {
  std::vector<std::string> networks = kNetworks;
  std::int64_t batch = 128;
  int steps = 10;
  int threads = 0;
  double momentum = 0.9;
  std::string purpose{};
  std::int64_t rows = 1;
  bool kernels = false, bf16 = false;
};

// All instructions with the same op and types: their number, and seconds.
struct Kernels {
  std::string signature;
  int count = 0;
  double alone = 0, in_step = 0;  // of one instruction
};

bool computes(const Program& p, const Instruction& s) {
  return p.lane(s.lane).kind == LaneKind::compute && s.op->name() != "input" && s.op->name() != "result";
}

std::vector<Kernels> kernels_of(const Program& p, const Timeline& timeline) {
  std::map<std::string, Kernels> all;
  std::map<InstructionId, std::vector<double>> spans;
  for (const Span& s : timeline.spans) spans[s.instruction].push_back(s.end - s.begin);
  for (const InstructionId id : p.instructions.ids()) {
    const Instruction& s = p.instruction(id);
    if (!computes(p, s)) continue;
    Kernels& k = all[signature(*s.op, s.inputs)];
    if (k.count++ == 0) {
      k.signature = signature(*s.op, s.inputs);
      k.alone = KernelAlone(*s.op, s.inputs, s.outputs, p.threads).fastest(0.05);
    }
    if (const auto& times = spans[id]; !times.empty()) k.in_step += median(times);
  }
  std::vector<Kernels> list;
  for (auto& [text, k] : all) {
    k.in_step /= k.count;
    list.push_back(k);
  }
  std::ranges::sort(list, std::ranges::greater(), [](const Kernels& k) { return k.count * k.in_step; });
  return list;
}

std::string purpose_of(const std::string& name, const Options& o) {
  if (!o.purpose.empty()) return o.purpose;
  return contains(nn::network_names(), name) ? "cifar" : nn::purpose_of(name);
}

nn::WholeNetwork network_of(const std::string& name, const Options& o) {
  if (name != "dlrm") return nn::make_network(name, purpose_of(name, o), o.batch);
  nn::DlrmOptions dlrm;
  for (std::int64_t& rows : dlrm.rows) rows *= o.rows;
  return nn::dlrm_network(dlrm, o.batch);
}

void measure(const std::string& name, const Options& o, const Ceilings& most) {
  const nn::WholeNetwork net = network_of(name, o);
  net.module->initialize(1);
  Strategy s{.optimizer = SgdOptions{.momentum = o.momentum}, .threads = o.threads};
  if (o.bf16) s.amp = DType::bf16;
  const Graph forward = nn::traced_loss(net);
  const double begin = steady_seconds();
  const Program p = build(forward, s);
  const double build_seconds = steady_seconds() - begin;
  apps::DrawnInputs host(net);
  Session session(p, thread_comms(p.ranks()), host, {.spans = 1'000'000});
  session.load(net.module->state());
  const std::vector<double> seconds = step_seconds(session, o.steps);
  const double step = seconds[seconds.size() / 2];
  Work work;
  for (const Instruction& s : p.instructions) {
    if (!computes(p, s)) continue;
    const Work w = s.op->cost(s.inputs, s.outputs);
    work.flops += w.flops, work.bytes += w.bytes;
  }
  const auto kernels = kernels_of(p, session.timeline());
  double alone = 0;
  for (const Kernels& k : kernels) alone += k.count * k.alone;
  fmt::print("{:<18} {:9.2f} {:9.2f} {:8.0f} {:7.0f}% {:11.2f} {:7.0f}% {:8.2f} {:8.2f} {:9.1f}\n", name,
             1e3 * step, 1e3 * seconds[0], work.flops / step / 1e9, 100 * work.flops / step / most.flops,
             1e3 * alone, 100 * alone / step, work.bytes / 1e9, build_seconds,
             static_cast<double>(planned_peak(p)) / 1e6);
  for (const std::string& why : dense_tables(forward, s)) fmt::print("  {}\n", why);
  if (!o.kernels) return;
  for (const Kernels& k : kernels)
    fmt::print("  {:3} x {:8.3f} ms in the step, {:8.3f} alone  {}\n", k.count, 1e3 * k.in_step,
               1e3 * k.alone, k.signature);
}

void measure_all(const Options& o) {
  const Ceilings most = measure_ceilings(o.threads);
  fmt::print("batch {}, {} threads, which do at most {:.0f} GFLOP/s and {:.0f} GB/s\n", o.batch, o.threads,
             most.flops / 1e9, most.bandwidth / 1e9);
  fmt::print("{:<18} {:>9} {:>9} {:>8} {:>8} {:>11} {:>8} {:>8} {:>8} {:>9}\n", "network", "step ms",
             "fastest", "GFLOP/s", "of most", "kernels ms", "of step", "GB", "build s", "peak MB");
  for (const std::string& name : o.networks) measure(name, o, most);
}

}  // namespace
}  // namespace tandem::bench

int main(int argc, char** argv) {
  using namespace tandem;
  CLI::App app{
      "Measures training steps of whole networks: times; their share of the machine's arithmetic (of most, which\n"
      "Winograd's transforms can exceed); the times of their kernels by themselves, and these as a share of the step\n"
      "(of step, above 100 % where operands are in the cache in a step); the bytes that the kernels move; the planned peak.",
      "bench_step"};
  bench::Options o;
  o.threads = default_threads();
  app.option_defaults()->always_capture_default();
  app.add_option("networks", o.networks, "networks to measure, as tandem summary lists them");
  app.add_option("--for", o.purpose,
                 "what they are trained on; else CIFAR, or what a network of that name is for")
      ->check(CLI::IsMember(nn::network_purposes()));
  app.add_option("-b,--batch-size", o.batch, "samples per step")->check(CLI::PositiveNumber);
  app.add_option("--steps", o.steps, "number of measured steps, after two that do not count")
      ->check(CLI::PositiveNumber);
  app.add_option("--threads", o.threads, "threads of the team")->check(CLI::PositiveNumber);
  app.add_option("--momentum", o.momentum, "of SGD; without it, tables have sparse updates")
      ->check(CLI::Range(0.0, 0.999));
  app.add_option("--rows", o.rows, "how many times as many rows the tables of dlrm have")
      ->check(CLI::Range(1, 100));
  app.add_flag("--bf16", o.bf16, "use mixed precision");
  app.add_flag("--kernels", o.kernels, "also print each kernel's time, in the step and alone");
  return apps::run_program(app, argc, argv, [&] {
    prepare_teams(argv);
    bench::measure_all(o);
  });
}
