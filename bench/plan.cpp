// Measures planners. All-reduces: a large random model, the layers of ResNet-152, and the simulation of each
// policy on 2,048 nodes. Pipelines: cuts of a large random model, and the simulation of many stages.
#include <cmath>
#include <random>

#include <tandem/core/base/units.h>
#include <tandem/dist/all_reduce_policies.h>
#include <tandem/pipeline/partition.h>
#include <tandem/pipeline/schedules.h>
#include <tandem/plan/pipeline_simulation.h>

#include "command_line.h"
#include "report.h"

namespace tandem::bench {
namespace {

// A contention model of plausible size: 50 Gb/s, and computation 28 % slower beside 2,048 threads.
AllReduceProblem problem(std::vector<GradientLayer> layers, int nodes) {
  const ContentionModel model{1, 1.34e-4, {6e6, 5e6, 0.1, 0.6}, {6.2e6, 5e6, 0.1, 0.6}};
  std::vector<ThreadRates> choices;
  for (const int threads : {128, 256, 512, 1024, 2048, 4096}) choices.push_back(model.at(threads));
  return {std::move(layers), ring_costs(nodes, 0.007, std::move(choices)),
          [model, table = nccl_threads(nodes)](double bytes) { return model.at(table.at(bytes)); }};
}

std::vector<GradientLayer> random_layers(int count) {
  std::mt19937_64 rng(1);
  std::uniform_real_distribution<double> u(0, 1);
  std::vector<GradientLayer> layers;
  for (int l = 0; l < count; ++l) layers.push_back({"layer", u(rng), std::pow(10, 3 + 3.5 * u(rng))});
  return layers;
}

// The 156 convolutions and products of ResNet-152 (He et al. 2016), backward, with the two vectors of each
// norm in the bytes of its convolution. Times are proportional to multiplications, 160 ms in all.
std::vector<GradientLayer> resnet152() {
  std::vector<GradientLayer> forward;
  double flops = 0;
  const auto add = [&](double in, double out, double kernel, double pixels) {
    const double weights = in * out * kernel * kernel;
    forward.push_back({"conv", weights * pixels, 4 * (weights + 2 * out)});
    flops += weights * pixels;
  };
  add(3, 64, 7, 112 * 112);
  double in = 64;
  const int blocks[] = {3, 8, 36, 3};
  for (int stage = 0; stage < 4; ++stage) {
    const double width = 64 << stage, pixels = std::pow(56 >> stage, 2);
    for (int block = 0; block < blocks[stage]; ++block) {
      add(in, width, 1, block == 0 && stage > 0 ? 4 * pixels : pixels);
      add(width, width, 3, pixels);
      add(width, 4 * width, 1, pixels);
      if (block == 0) add(in, 4 * width, 1, pixels);
      in = 4 * width;
    }
  }
  add(2048, 1000, 1, 1);
  for (GradientLayer& layer : forward) layer.compute_ms *= 160 / flops;
  return {forward.rbegin(), forward.rend()};
}

// Random layers, for eight stages and eight micro-batches, over a link with 1 GB/s.
engine::PartitionProblem pipeline(std::string_view schedule, int chunks = 1) {
  std::mt19937_64 rng(1);
  std::uniform_real_distribution<double> u(0, 1);
  engine::PartitionProblem problem{
      .layers = {},
      .schedule = make_schedule(schedule, {.stages = 8, .microbatches = 8, .chunks = chunks}),
      .link = {50e-6, 1e9}};
  for (int l = 0; l < 1000; ++l)
    problem.layers.push_back(
        {"layer", 1e-3 * u(rng), 2e-3 * u(rng), 1e6 * u(rng), 1e6 * u(rng), 4e6 * u(rng), 4e6 * u(rng)});
  return problem;
}

void measure() {
  const AllReduceProblem large = problem(random_layers(1000), 64), deep = problem(resnet152(), 8);
  report("libra, 1,000 layers, K = 10, Z = 150, J = 6",
         kMsPerSecond * fastest(3, [&] { plan_libra(large.layers, large.costs, large.limits); }), "ms", 300);
  report("libra, ResNet-152, K = 10, Z = 150, J = 6",
         kMsPerSecond * fastest(3, [&] { plan_libra(deep.layers, deep.costs, deep.limits); }), "ms", 20);
  const AllReduceProblem many = problem(resnet152(), 2048);
  for (const AllReducePolicy& policy : all_reduce_policies())
    report(fmt::format("plan and simulate {}, ResNet-152, 2,048 nodes", policy.name),
           kMsPerSecond * fastest(3, [&] { policy.plan(many); }), "ms", 50);
  for (const char* name : {"dualpipe", "pipedream", "1f1b"}) {
    const engine::PartitionProblem layers = pipeline(name);
    report(fmt::format("cut 1,000 layers into 8 stages, {}, 1 GB/s", name),
           kMsPerSecond * fastest(3, [&] { engine::best_partition(layers); }), "ms", 500);
  }
  const engine::PartitionProblem in_turn = pipeline("interleaved", 2);
  report("cut 1,000 layers into 8 stages, interleaved on 4 devices, 1 GB/s",
         kMsPerSecond * fastest(3, [&] { engine::best_partition(in_turn); }), "ms", 500);
  engine::PartitionProblem tight = pipeline("1f1b");
  tight.memory_budget = 1.1 * engine::least_memory_budget(tight);
  report("cut 1,000 layers into 8 stages, 1f1b, 1 GB/s, 1.1 of the least memory",
         kMsPerSecond * fastest(3, [&] { engine::best_partition(tight); }), "ms", 500);
  const StageProfile stages{.stages = std::vector<StageCost>(64, {1, 1.5, 4e6, 4e7}),
                            .link = {.bytes_per_ms = 1e8}};
  for (const char* name : {"pipedream", "dualpipe", "spectrain"}) {
    const engine::PipelineSchedule schedule = make_schedule(name, {.stages = 64, .lockstep = true});
    report(fmt::format("plan, prove and simulate 64 stages and 1,000 batches, {}", name),
           kMsPerSecond * fastest(3, [&] { engine::simulate_pipeline(stages, schedule, 1000); }), "ms", 1000);
  }
}

}  // namespace
}  // namespace tandem::bench

int main(int argc, char** argv) {
  CLI::App app{"Measures the planners of all-reduces and of pipelines.", "bench_plan"};
  return tandem::apps::run_program(app, argc, argv, tandem::bench::measure);
}
