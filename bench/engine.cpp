// Measures the cost of the engine itself: planning, proving and simulating Programs of 2,000 and of 200,000
// instructions, the overhead of an instruction that computes nothing, the CPU time of a waiting lane, and
// allocations. Prints a table.
#include <algorithm>
#include <functional>

#include <fmt/format.h>

#include <tandem/core/runtime/cpu_backend.h>
#include <tandem/engine.h>

#include "allocations.h"
#include "command_line.h"
#include "large_program.h"
#include "measure.h"
#include "program_builder.h"
#include "report.h"

namespace tandem::bench {
using namespace engine;
namespace {

/// Keeps a core busy for a while; with 0 seconds it does nothing.
class Busy final : public Op {
 public:
  explicit Busy(double seconds, std::function<void()> also = {}) : seconds(seconds), also(std::move(also)) {}
  std::string_view name() const override { return "busy"; }
  Types infer(TypesView) const override { return {}; }
  Tensors vjp(const VjpArgs&) const override { no_rule(*this, "vjp", "it only takes time"); }
  Tensors vmap(const VmapArgs&) const override { no_rule(*this, "vmap", "it only takes time"); }
  Work cost(TypesView, TypesView) const override { return {}; }
  std::vector<Alias> may_alias(TypesView) const override { return {}; }
  const double seconds;
  const std::function<void()> also;
};

const KernelTable& kernels() {
  static const KernelTable table = [] {
    KernelTable t("bench");
    t.add("busy", [](const KernelSpec& spec) -> KernelPtr {
      const auto& op = static_cast<const Busy&>(spec.op);
      if (op.seconds == 0 && !op.also) return make_kernel([](const Launch&) {});
      return make_kernel([&op](const Launch&) {
        for (const double end = steady_seconds() + op.seconds; steady_seconds() < end;) {
        }
        if (op.also) op.also();
      });
    });
    return t;
  }();
  return table;
}

Program with_op(Program p, const OpPtr& op) {
  for (Instruction& s : p.instructions) {
    s.op = op;
    for (MemberId m : s.reads) s.inputs.push_back({DType::u8, {p.member(m).bytes}});
    for (MemberId m : s.writes) s.outputs.push_back({DType::u8, {p.member(m).bytes}});
  }
  return p;
}

/// A planned Program of one device, ready to run.
struct Runner {
  explicit Runner(Program p) : executable(std::move(p), {}, memory, kernels()), backend(executable, lanes) {}
  RankMemory memory;
  CpuLanes lanes;
  Executable executable;
  CpuBackend backend;
};

void report_planning(const std::string& what, const Program& schedule) {
  Program plan;
  const double planning = fastest(5, [&] { plan = planned(schedule); });
  const double proving = fastest(5, [&] { verify(plan); });
  constexpr std::int64_t kUnits = 10;
  const double simulating = fastest(5, [&] {
    SimBackend sim(plan);
    run(sim, kUnits);
  });
  std::size_t waits = 0;
  for (const Instruction& s : plan.instructions) waits += s.waits.size();
  fmt::print("{}: {} instructions on {} lanes, {} blocks, {} waits\n", what, plan.instructions.size(),
             plan.lanes.size(), plan.blocks.size(), waits);
  for (std::size_t device = 0; device < plan.memory.size(); ++device)
    fmt::print(
        "  device {}: work arena {:.1f} MB, {:.3f} of the live bytes' peak\n", device,
        static_cast<double>(plan.memory[device].work) / 1e6,
        static_cast<double>(plan.memory[device].work) / static_cast<double>(plan.memory[device].live_peak));
  report("  plan", planning * 1e3, "ms", 100);
  report("  verify", proving * 1e3, "ms", 200);
  report("  simulate one unit", simulating / static_cast<double>(plan.units(kUnits)) * 1e3, "ms", 2);
}

void report_overhead(const std::string& what, const Program& plan) {
  Runner r(with_op(plan, std::make_shared<Busy>(0)));
  constexpr std::int64_t kBatches = 50;
  run(r.backend, kBatches);
  const long before = testing::allocations();
  const double seconds = fastest(10, [&] { run(r.backend, kBatches); });
  report(what,
         seconds / static_cast<double>(kBatches * static_cast<std::int64_t>(plan.instructions.size())) * 1e6,
         "us", 0.5);
  report("  allocations while running", static_cast<double>(testing::allocations() - before), "", 0);
}

/// One lane runs 1,000 short instructions, and another waits for the last of them.
void report_waiting() {
  constexpr double kStep = 20e-6;
  constexpr int kSteps = 1000, kUnits = 10;
  testing::ProgramBuilder b;
  InstructionId last = -1;
  for (int i = 0; i < kSteps; ++i) last = b.add({.name = fmt::format("step {}", i), .lane = b.lane(0)});
  b.add({.name = "wait", .lane = b.lane(0, LaneKind::compute, 1), .waits = {{last, 0}}});
  Program p = with_op(planned(b.take()), std::make_shared<Busy>(kStep));
  double first = 0, used = 0, lane_share = 0, main_share = 0;
  p.instructions.back().op = std::make_shared<Busy>(0, [&] {
    const double now = thread_seconds();
    if (first == 0) first = now;
    used = now - first;
  });
  Runner r(std::move(p));
  double least = 1e9;
  for (int repeat = 0; repeat < 10; ++repeat) {
    first = 0;
    const double main_before = thread_seconds(), begin = steady_seconds();
    run(r.backend, kUnits);
    const double elapsed = steady_seconds() - begin;
    if (elapsed >= least) continue;
    least = elapsed;
    lane_share = 100 * used / (elapsed * (kUnits - 1) / kUnits);
    main_share = 100 * (thread_seconds() - main_before) / elapsed;
  }
  report("CPU share of a waiting lane", lane_share, "%", 2);
  report("CPU share of the thread that issues and waits", main_share, "%", 2);
  report("1,000 instructions of 20 us beside a waiting lane, ratio", least / (kUnits * kSteps * kStep), "",
         1.02);
}

Program unplanned_chain(int steps) {
  testing::ProgramBuilder b;
  MemberId before = -1;
  for (int i = 0; i < steps; ++i) {
    const MemberId x = b.value(fmt::format("x{}", i), 0, 1024);
    Instruction s{.name = fmt::format("step {}", i), .lane = b.lane(0), .writes = {x}};
    if (before >= 0) s.reads.push_back(before);
    b.add(std::move(s));
    before = x;
  }
  return b.take();
}
Program chain(int steps) { return planned(unplanned_chain(steps)); }

/// One of many small residual blocks.
struct Block : nn::Module {
  using Module::Module;
  Tensor forward(const Tensor& x) override { return x + last(relu(norm(first(x)))); }
  nn::Linear first{*this, "first", {.in = 8, .out = 8}};
  nn::BatchNorm norm{*this, "norm", {.channels = 8}};
  nn::Linear last{*this, "last", {.in = 8, .out = 8}};
};

/// The seconds that large Programs take, which grow little faster than their size.
void report_large() {
  const auto report_of = [](const std::string& what, double target, const std::function<void()>& f) {
    report(what, fastest(1, f), "s", target);
  };
  for (const auto& [what, schedule] :
       {std::pair("a chain", unplanned_chain(200'000)), std::pair("a training step", training_step(17'200))})
    report_of(fmt::format("plan and verify {} of {} instructions", what, schedule.instructions.size()), 10,
              [&schedule = schedule] { verify(planned(schedule)); });
  nn::Sequential net;
  for (int i = 0; i < 800; ++i) net.add<Block>();
  net.initialize(1);
  Graph graph;
  Trace trace(graph);
  trace.result(std::string(kLossResult), mean(net(trace.input("x", {DType::f32, {4, 8}}))));
  report_of("build the Program of 800 residual blocks", 1, [&] { build(graph, {}); });
}

}  // namespace
}  // namespace tandem::bench

int main(int argc, char** argv) {
  using namespace tandem::bench;
  CLI::App app{
      "Measures what the engine adds to the kernels: planning, verifying, simulating, replaying, waiting.",
      "bench_engine"};
  return tandem::apps::run_program(app, argc, argv, [] {
    report_planning("one device", training_step(174));
    report_planning("DualPipe on four devices", training_step(176, 4));
    report_overhead("an empty instruction on one lane", chain(2000));
    report_overhead("an empty instruction on four lanes", tandem::engine::planned(training_step(174)));
    report_waiting();
    report_large();
  });
}
