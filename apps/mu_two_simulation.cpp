#include "mu_two_simulation.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <tandem/core/base/error.h>
#include <tandem/core/base/units.h>
#include <tandem/nn/models/whole_networks.h>
#include <tandem/plan/array_partition.h>
#include <tandem/plan/build.h>

namespace tandem::apps {
namespace {

constexpr std::int64_t kAnyBytes = std::numeric_limits<std::int64_t>::max() / 2;
constexpr double kLinkBytesPerMs = 32e6;  // PCIe 4.0, each way

// Of several turns, which follow one another. Models of all turns but one wait on the host.
void add(MuTwoOutcome& sum, const MuTwoOutcome& turn) {
  const std::int64_t waits = std::max(sum.host_bytes + turn.state_bytes, sum.state_bytes + turn.host_bytes);
  sum.host_bytes = sum.state_bytes == 0 ? turn.host_bytes : waits;
  sum.state_bytes += turn.state_bytes;
  sum.ms += turn.ms;
  sum.recompute_ms += turn.recompute_ms;
  sum.stall_ms += turn.stall_ms;
  sum.swap_ms += turn.swap_ms;
  sum.compute_ms += turn.compute_ms;
  sum.roofline_ms += turn.roofline_ms;
  sum.peak_bytes = std::max(sum.peak_bytes, turn.peak_bytes);
  sum.wanted_bytes = std::max(sum.wanted_bytes, turn.wanted_bytes);
}

// What the kernels of a step take without `kernel_ms` for each.
double roofline_ms(const MemoryProblem& problem, double kernel_ms) {
  double ms = 0;
  for (const MemoryGraph& graph : problem.graphs)
    for (const MemoryNode& node : graph.nodes) ms += std::max(0.0, node.run_ms - kernel_ms);
  return ms;
}

}  // namespace

const std::vector<MuTwoNetwork>& mu_two_networks() {
  static const std::vector<MuTwoNetwork> networks{
      {"BERT", "bert_base", "text", 24, 16, 512},
      {"GPT-2", "gpt2", "text", 16, 8, 1024},
      {"ViT", "vit_60m", "imagenet", 16, 8, 0, 128},
      {"MobileNetV3", "mobilenet_v3_large", "imagenet", 128, 64, 0, 512},
      {"ResNet-101", "resnet101", "imagenet", 64, 48},
      {"DLRM", "dlrm", "clicks", 1024, 512, 0, 163840}};
  return networks;
}

MuTwoNetwork with_samples(MuTwoNetwork network, std::int64_t samples) {
  network.samples = samples;
  return network;
}

MuTwoNetwork with_larger_batch(MuTwoNetwork network) {
  network.samples = network.larger;
  network.title += ", batch of ours";
  network.is_ours = true;
  return network;
}

const MuTwoDevice& mu_two_a100() {
  static const MuTwoDevice device{"A100, 40 GB", 40'000'000'000, 144'000'000'000, {19.5e12, 1555e9, 10e-6}};
  return device;
}
const MuTwoDevice& mu_two_v100() {
  static const MuTwoDevice device{"V100, 32 GB", 32'000'000'000, 96'000'000'000, {15.7e12, 900e9, 10e-6}};
  return device;
}

MuTwoSimulation::MuTwoSimulation(const MuTwoNetwork& network, MuTwoDevice device)
    : device_(std::move(device)) {
  nn::WholeNetwork whole = nn::make_network(network.network, network.purpose, network.samples);
  if (network.words > 0) whole = nn::with_text_length(std::move(whole), network.words);
  nn::fill_with_zeros(*whole.module);
  forward_ = nn::traced_loss(whole);
}

const MemoryProblem& MuTwoSimulation::problem_of(const std::vector<int>& arrays) {
  const auto [found, fresh] = problems_.try_emplace(arrays);
  if (!fresh) return found->second;
  Strategy s;
  s.models = 0;
  for (const int models : arrays) s.models += models;
  s.arrays = arrays;
  s.optimizer = AdamOptions{};
  s.memory_plan = "none";
  s.copy_link = {.bytes_per_ms = kLinkBytesPerMs};
  s.speed = device_.speed;
  s.kernels = nullptr;
  s.verify = false;
  found->second = memory_plans(forward_, s).at(0).step.problem;
  return found->second;
}

MuTwoOutcome MuTwoSimulation::planned(const std::vector<int>& arrays, const std::string& policy,
                                      std::int64_t limit) {
  const auto [found, fresh] = outcomes_.try_emplace({arrays, limit == kAnyBytes ? "" : policy});
  MuTwoOutcome& o = found->second;
  if (!fresh) return o;
  const MemoryProblem& problem = problem_of(arrays);
  const CostedPlan plan = memory_policy(policy).make(problem, limit);
  o.ms = plan.cost.time_ms;
  o.recompute_ms = plan.cost.recompute_ms;
  o.stall_ms = plan.cost.stall_ms;
  o.compute_ms = o.ms - o.recompute_ms - o.stall_ms;
  o.roofline_ms = roofline_ms(problem, device_.speed.seconds_per_kernel * kMsPerSecond);
  o.peak_bytes = plan.cost.peak_bytes;
  o.state_bytes = problem.static_bytes;
  o.host_bytes = host_peak(problem, plan.plan);
  o.possible = o.peak_bytes <= limit && o.host_bytes <= device_.host_bytes;
  for (const MemoryStep& step : plan.plan.steps)
    if (step.kind == MemoryStep::Kind::d2h || step.kind == MemoryStep::Kind::h2d)
      o.swap_ms += problem.copy_ms(step.value);
  o.wanted_bytes =
      limit == kAnyBytes ? o.peak_bytes : memory_policy("none").make(problem, kAnyBytes).cost.peak_bytes;
  return o;
}

MuTwoOutcome MuTwoSimulation::unlimited(int models) { return planned({models}, "none", kAnyBytes); }

MuTwoOutcome MuTwoSimulation::hfta(int models) {
  for (int k = models; k >= 1; --k) {
    if (unlimited(k).peak_bytes > device_.bytes) continue;
    MuTwoOutcome sum;
    sum.possible = true;
    for (int done = 0; done < models; done += k) add(sum, unlimited(std::min(k, models - done)));
    sum.possible = sum.host_bytes <= device_.host_bytes;
    sum.arrays = to_string(ArrayPartition{{k}});
    return sum;
  }
  return {};
}

MuTwoOutcome MuTwoSimulation::hfta_capuchin(int models) {
  MuTwoOutcome o = planned({models}, "capuchin", device_.bytes);
  o.arrays = to_string(ArrayPartition{{models}});
  return o;
}

MuTwoOutcome MuTwoSimulation::mu_two(int models, const std::string& policy) {
  MuTwoOutcome best;
  for (const ArrayPartition& partition : partitions_of(models)) {
    MuTwoOutcome sum;
    sum.possible = true;
    for (const auto& turn : partition) {
      const MuTwoOutcome one = planned(turn, policy, device_.bytes);
      sum.possible = sum.possible && one.possible;
      add(sum, one);
    }
    sum.possible = sum.possible && sum.host_bytes <= device_.host_bytes;
    sum.arrays = to_string(partition);
    if (sum.possible && (!best.possible || sum.ms < best.ms)) best = sum;
  }
  return best;
}

}  // namespace tandem::apps
