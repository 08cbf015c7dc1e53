// The partitioner against an exhaustive search; its cost model against the same by hand, and against the
// simulator. The search takes the bytes of a stage from the model; tests named Memory compute those by hand.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <tandem/pipeline/partition.h>
#include <tandem/pipeline/schedule_costs.h>
#include <tandem/pipeline/schedules.h>
#include <tandem/plan/pipeline_simulation.h>

#include "expect_error.h"
#include "seed.h"

namespace tandem::testing {
using namespace engine;
namespace {

// The cost model of docs/pipelines.md, written down a second time for the schedules that have a name.
double period_by_hand(const std::string& name, const PipelineShape& shape, const PartitionProblem& p,
                      const std::vector<int>& cuts, const std::vector<int>& replicas) {
  const int n = shape.stages, m = shape.microbatches, v = shape.chunks;
  const bool dual = name.starts_with("dualpipe") || name == "spectrain";
  const bool lagged = p.schedule.overlaps_batches();
  const auto seconds = [&](double bytes) {
    return p.link.latency + (p.link.bandwidth > 0 ? bytes / m / p.link.bandwidth : 0);
  };
  double period = 0, trip = 0;  // of the stages from k on
  for (int k = n; k-- > 0;) {
    const int first = k == 0 ? 0 : cuts[k - 1],
              end = k == n - 1 ? static_cast<int>(p.layers.size()) : cuts[k];
    double f = 0, b = 0, w = 0;
    for (int l = first; l < end; ++l) {
      f += p.layers[l].forward;
      b += p.layers[l].backward;
      w += p.layers[l].weight_bytes;
    }
    const bool lockstep = shape.lockstep && n > 1;
    double unit = f + b;
    if (lockstep && name.starts_with("pipedream")) unit = 2 * std::max(f, b);
    if (dual) {
      const double beside = std::max({f, b, p.corun * (f + b)});
      unit = k < n - 1 ? beside : (f + b) / m + (1 - 1.0 / m) * beside;
    }
    const double r = replicas.empty() ? 1 : replicas[k];
    if (r > 1) {
      const double sum =
          2 * (r - 1) * p.link.latency + (p.link.bandwidth > 0 ? 4 * (r - 1) * w / r / p.link.bandwidth : 0);
      unit = lagged ? std::max(unit, sum) / r : std::max(unit / r, sum);
    }
    double own = lagged ? unit * (dual && k < n - 1 ? 2 : 1) : (f + b) / r;
    if (!(lockstep && lagged && name != "pipedream-2bw")) own /= m;
    const double computed = own;
    if (k < n - 1 && n > v) {
      const PipelineLayer& cut = p.layers[end - 1];
      own += seconds(cut.forward_bytes) + seconds(cut.backward_bytes);
    }
    const double downstream = trip + own - computed;
    trip += own;
    if (!lagged) {
      const auto held = [&](int stage) { return held_activations(p.schedule, stage); };
      const double wait = k == n - 1 ? 0 : downstream / v - (held(k) - held(k + 1)) * f / m / r;
      period = std::max(period + own / v, v * unit + std::max(0.0, wait));
    }
    if (k > 0 && n > v) {
      const PipelineLayer& cut = p.layers[first - 1];
      const double most = std::max(cut.forward_bytes, cut.backward_bytes);
      period = std::max(period, v * m * (lagged ? seconds(most) / r : seconds(most / r)));
    }
    double held = n - k;  // micro-batches that may be under way
    if (name == "plain") held = 1;
    if (name == "gpipe") held = m;
    if (name == "1f1b") held = std::min(m, n - k);
    if (name.starts_with("pipedream") && name != "pipedream-2bw") held = m * (n - k);
    if (dual) held = m * (2 * (n - 1 - k) + 1);
    if (name == "interleaved") held = held_activations(p.schedule, k);
    period = std::max({period, v * unit, m * trip / held});
  }
  return period;
}

struct Drawn {
  std::string name;
  PipelineShape shape;
  PartitionProblem problem;
};

Drawn drawn(std::mt19937_64& rng) {
  Drawn d;
  const std::vector<std::string> names = schedule_names();
  d.name = names[static_cast<std::size_t>(draw_int(rng, 0, static_cast<int>(names.size()) - 1))];
  d.shape.stages = draw_int(rng, 1, 4);
  d.shape.microbatches = draw_int(rng, 1, 3);
  d.shape.lockstep = draw_bool(rng, 0.3);
  if (d.name == "interleaved") {
    d.shape.chunks = draw_int(rng, 1, 2);
    d.shape.stages = d.shape.chunks * draw_int(rng, 1, 2);
    d.shape.microbatches = d.shape.devices() * draw_int(rng, 1, 2);
  }
  if (d.name == "pipedream-2bw") d.shape.microbatches += d.shape.stages - 1;
  PartitionProblem& p = d.problem;
  p.schedule = make_schedule(d.name, d.shape);
  p.corun = draw_real(rng, 0.5, 1);
  const bool whole = draw_bool(rng, 0.3);  // small whole numbers, which give many ties
  const auto number = [&](double most) {
    return draw_bool(rng, 0.1) ? 0.0 : whole ? draw_int(rng, 1, 3) : draw_real(rng, 0, most);
  };
  const double bytes = draw_bool(rng, 0.5) ? 1 : 10;
  for (int l = draw_int(rng, d.shape.stages, 8); l > 0; --l)
    p.layers.push_back(
        {"l" + std::to_string(l), number(1), number(2), number(bytes), number(bytes), number(5), number(5)});
  if (draw_bool(rng, 0.7))
    p.link = {draw_bool(rng, 0.5) ? draw_real(rng, 0, 0.5) : 0, draw_real(rng, 0.5, 10)};
  if (draw_bool(rng, 0.3)) p.link.bandwidth = 0;
  if (d.shape.chunks == 1 && draw_bool(rng, 0.4)) p.spare_devices = draw_int(rng, 1, 3);
  p.optimizer_copies = draw_int(rng, 0, 2);
  return d;
}

bool fits(const PartitionProblem& p, const Partition& partition) {
  return p.memory_budget == 0 || std::ranges::all_of(partition.stages, [&](const PartitionedStage& s) {
           const auto on_device = std::ranges::count(p.schedule.stages, s.device, &PipelineStage::device);
           return s.memory_bytes * static_cast<double>(on_device) <= p.memory_budget;
         });
}

double pace_of(const Partition& partition) {
  return std::ranges::max(partition.stages, {}, &PartitionedStage::unit).unit;
}

// Every partition, in the order in which ties are broken: by the end of the first stage, then by its
// replicas, then by the second stage.
void for_each_partition(const PartitionProblem& p,
                        const std::function<void(const std::vector<int>&, const std::vector<int>&)>& f) {
  const int stages = static_cast<int>(p.schedule.stages.size()), layers = static_cast<int>(p.layers.size());
  std::vector<int> cuts, replicas;
  const std::function<void(int, int)> next = [&](int first, int spare) {
    const int k = static_cast<int>(cuts.size());
    const bool is_last = k == stages - 1;
    for (int end = is_last ? layers : first + 1; end <= layers - (stages - 1 - k); ++end) {
      if (!is_last) cuts.push_back(end);
      for (int r = 1; r <= 1 + spare; ++r) {
        replicas.push_back(r);
        is_last ? f(cuts, replicas) : next(end, spare - (r - 1));
        replicas.pop_back();
      }
      if (!is_last) cuts.pop_back();
    }
  };
  next(0, p.spare_devices);
}

std::vector<int> replicas_of(const Partition& partition) {
  std::vector<int> replicas;
  for (const PartitionedStage& s : partition.stages) replicas.push_back(s.replicas);
  return replicas;
}

TEST(Partition, IsTheFirstBestOfAnExhaustiveSearch) {
  auto rng = generator("partition");
  int replicated = 0, limited = 0, impossible = 0, ties = 0, uneven = 0;
  for (int i = 0; i < 3000; ++i) {
    Drawn d = drawn(rng);
    PartitionProblem& p = d.problem;
    std::vector<double> needs;  // of each partition
    const auto need_of = [&](const Partition& partition) {
      double need = 0;
      for (const PartitionedStage& s : partition.stages)
        need = std::max(need, s.memory_bytes * static_cast<double>(std::ranges::count(
                                                   p.schedule.stages, s.device, &PipelineStage::device)));
      return need;
    };
    for_each_partition(p, [&](const auto& cuts, const auto& replicas) {
      const Partition at = partition_at(p, cuts, replicas);
      const double by_hand = period_by_hand(d.name, d.shape, p, cuts, replicas);
      ASSERT_NEAR(by_hand, at.period, 1e-9 * (1 + by_hand)) << d.name << " " << d.shape.stages;
      needs.push_back(need_of(at));
    });
    const double least = std::ranges::min(needs), most = std::ranges::max(needs);
    ASSERT_EQ(least, least_memory_budget(p));
    if (draw_bool(rng, 0.4))
      p.memory_budget = std::max(1e-3, least * 0.8 + (most - 0.8 * least) * draw_real(rng, 0, 1));
    double least_pace = std::numeric_limits<double>::infinity();
    for_each_partition(p, [&](const auto& cuts, const auto& replicas) {
      const Partition at = partition_at(p, cuts, replicas);
      if (fits(p, at)) least_pace = std::min(least_pace, pace_of(at));
    });
    const auto first_best = [&](double slowest) {
      Partition best{{}, std::numeric_limits<double>::infinity()};
      for_each_partition(p, [&](const auto& cuts, const auto& replicas) {
        Partition at = partition_at(p, cuts, replicas);
        if (fits(p, at) && pace_of(at) <= slowest && at.period < best.period) best = std::move(at);
      });
      return best;
    };
    const Partition shortest = first_best(std::numeric_limits<double>::infinity()),
                    even = first_best(least_pace);
    const bool is_even = even.period <= shortest.period * (1 + 1e-9);
    const Partition& best = is_even ? even : shortest;
    SCOPED_TRACE(::testing::Message() << "case " << i << ": " << d.name << ", stages " << d.shape.stages);
    if (best.stages.empty()) {
      expect_error([&] { best_partition(p); }, {"the memory budget of", "the smallest budget that works"});
      ++impossible;
      continue;
    }
    const Partition found = best_partition(p);
    ASSERT_EQ(best.period, found.period);
    ASSERT_EQ(best.cuts(), found.cuts());
    ASSERT_EQ(replicas_of(best), replicas_of(found));
    replicated += std::ranges::max(replicas_of(found)) > 1;
    limited += p.memory_budget > 0;
    uneven += !is_even;
    ties += even.cuts() != shortest.cuts();
  }
  EXPECT_GT(replicated, 300);
  EXPECT_GT(limited, 300);
  EXPECT_GT(impossible, 20);
  EXPECT_GT(ties, 100);
  EXPECT_GT(uneven, 100);
}

// Stage 0 has two layers, which keep 10 + 20 bytes of a batch and have 1 + 2 of weights; stage 1 has one with
// 40 and 4. SGD with momentum.
TEST(Partition, MemoryOfAStageByHand) {
  PartitionProblem p{.layers = {{"a", 1, 2, 8, 8, 10, 1}, {"b", 1, 2, 8, 8, 20, 2}, {"c", 1, 2, 8, 8, 40, 4}},
                     .schedule = {},
                     .optimizer_copies = 1};
  const auto expect_memory = [&](const std::string& name, int microbatches, double first, double second) {
    p.schedule = make_schedule(name, {.stages = 2, .microbatches = microbatches});
    const Partition partition = partition_at(p, {2});
    EXPECT_EQ(first, partition.stages[0].memory_bytes) << name;
    EXPECT_EQ(second, partition.stages[1].memory_bytes) << name;
  };
  // Micro-batches held of those of a batch; weights: versions, the gradient, the momentum, predictions; for a
  // moment what goes from a to b and back, or the gradient of one micro-batch; what crosses the cut: the
  // value and its gradient, each in as many slots as it has.
  expect_memory("gpipe", 4, 30 * 4 / 4 + 3 * (1 + 1 + 1) + 16 / 4 + 1 + 8 * 2,
                40 * 4 / 4 + 4 * (1 + 1 + 1) + 4 + 8 * 2);
  expect_memory("1f1b", 4, 30 * 2 / 4 + 3 * (1 + 1 + 1) + 16 / 4 + 1 + 8 * 2,
                40 * 1 / 4 + 4 * (1 + 1 + 1) + 4 + 8 * 2);
  expect_memory("pipedream", 1, 30 * 2 + 3 * (2 + 1 + 1) + 16 + 8 * (2 + 2),
                40 * 1 + 4 * (1 + 1 + 1) + 8 * (2 + 2));
  expect_memory("pipedream-vs", 1, 30 * 2 + 3 * (2 + 1 + 1) + 16 + 8 * (2 + 2),
                40 * 1 + 4 * (2 + 1 + 1) + 8 * (2 + 2));
  expect_memory("pipedream-2bw", 2, 30 * 2 / 2 + 3 * (2 + 1 + 1) + 16 / 2 + 1 + 8 * 2,
                40 * 1 / 2 + 4 * (2 + 1 + 1) + 4 + 8 * 2);
  expect_memory("dualpipe", 1, 30 * 3 + 3 * (1 + 1 + 1) + 16 + 8 * (2 + 3),
                40 * 1 + 4 * (1 + 1 + 1) + 8 * (3 + 2));
  expect_memory("dualpipe-vs", 1, 30 * 3 + 3 * (3 + 1 + 1) + 16 + 8 * (2 + 3),
                40 * 1 + 4 * (2 + 1 + 1) + 8 * (3 + 2));
  expect_memory("spectrain", 1, 30 * 3 + 3 * (1 + 1 + 1 + 1) + 16 + 8 * (2 + 3),
                40 * 1 + 4 * (1 + 1 + 1 + 1) + 8 * (3 + 2));
  // The gradient of another device's layer, however large, takes no memory here; what comes from it does.
  p.layers[1].weight_bytes = 1000;
  expect_memory("gpipe", 4, 30 * 4 / 4 + 1001 * (1 + 1 + 1) + 1000 + 8 * 2,
                40 * 4 / 4 + 4 * (1 + 1 + 1) + 4 + 8 * 2);
  p.layers[1].forward_bytes = p.layers[1].backward_bytes = 800;
  expect_memory("pipedream", 1, 30 * 2 + 1001 * (2 + 1 + 1) + 16 + 800 * (2 + 2),
                40 * 1 + 4 * (1 + 1 + 1) + 800 * (2 + 2));
}

// Stages of one layer, as the simulator plans them. The gradient of a micro-batch can take a place of
// activations that are free by then, so with several it can be less.
TEST(Partition, MemoryIsThatOfTheSimulatorsPlan) {
  auto rng = generator("memory of partitions");
  for (int i = 0; i < 30; ++i)
    for (const std::string& name : schedule_names()) {
      const int stages = 1 << draw_int(rng, 0, 2), of_batch = 1 << draw_int(rng, 0, 2),
                microbatches = name == "pipedream-2bw" || name == "interleaved" ? 4 : of_batch;
      PartitionProblem p{.layers = {},
                         .schedule = make_schedule(name, {.stages = stages, .microbatches = microbatches}),
                         .optimizer_copies = 1};
      StageProfile profile;
      const auto bytes = [&] { return 1e6 * draw_int(rng, 1, 9); };
      for (int k = 0; k < stages; ++k) {
        const double crossing = bytes();
        p.layers.push_back({fmt::format("layer{}", k), 1, 2, crossing, crossing, bytes(), bytes()});
        const PipelineLayer& l = p.layers.back();
        profile.stages.push_back({1, 2, l.forward_bytes, l.weight_bytes, l.resident_bytes});
      }
      double most = 0;
      for (const PartitionedStage& stage : best_partition(p).stages)
        most = std::max(most, stage.memory_bytes);
      const auto planned = static_cast<double>(simulate_pipeline(profile, p.schedule, 40).peak_bytes) / most;
      EXPECT_LT(planned, name == "pipedream-2bw" ? 1.05 : 1.001)
          << name << " " << stages << " " << microbatches;
      EXPECT_GT(planned, microbatches == 1 ? 0.999 : 0.7) << name << " " << stages << " " << microbatches;
    }
}

// The same stages, the first with two replicas: each keeps its half of every micro-batch, or whole batches,
// of every second one. Weights are whole.
TEST(Partition, MemoryOfAReplicaByHand) {
  PartitionProblem p{.layers = {{"a", 1, 2, 8, 8, 10, 1}, {"b", 1, 2, 8, 8, 20, 2}, {"c", 1, 2, 8, 8, 40, 4}},
                     .schedule = {},
                     .spare_devices = 1,
                     .optimizer_copies = 1};
  const auto memory = [&](const std::string& name, int microbatches, std::vector<int> replicas) {
    p.schedule = make_schedule(name, {.stages = 2, .microbatches = microbatches});
    const Partition partition = partition_at(p, {2}, replicas);
    return std::pair(partition.stages[0].memory_bytes, partition.stages[1].memory_bytes);
  };
  EXPECT_EQ(memory("gpipe", 4, {2, 1}), std::pair((30 * 4 / 4 + 16 / 4 + 8 * 2) / 2 + 3 * (1 + 1 + 1) + 1.0,
                                                  40 * 4 / 4 + 8 * 2 + 4 * (1 + 1 + 1) + 4.0));
  EXPECT_EQ(memory("1f1b", 4, {1, 2}), std::pair(30 * 2 / 4 + 16 / 4 + 8 * 2 + 3 * (1 + 1 + 1) + 1.0,
                                                 (40 * 1 / 4 + 8 * 2) / 2 + 4 * (1 + 1 + 1) + 4.0));
  EXPECT_EQ(memory("pipedream", 1, {2, 1}).first, 30 * 1 + 3 * (2 + 1 + 1) + 16 + 8 * (2 + 2.0));
  EXPECT_EQ(memory("dualpipe", 1, {2, 1}).first, 30 * 2 + 3 * (1 + 1 + 1) + 16 + 8 * (2 + 3.0))
      << "two of three batches";
  EXPECT_EQ(memory("dualpipe", 1, {1, 2}).second, 40 * 1 + 4 * (1 + 1 + 1) + 8 * (3 + 2.0));
}

// Two replicas fit where one does not.
TEST(Partition, ReplicasCanFitABudget) {
  PartitionProblem p{
      .layers = {{"a", 1, 2, 0, 0, 100, 1}}, .schedule = make_schedule("1f1b", {}), .optimizer_copies = 1};
  p.memory_budget = 60;
  expect_error([&] { best_partition(p); }, {"needs 103 bytes", "43 more", "is 103"});
  p.spare_devices = 1;
  EXPECT_EQ(2, best_partition(p).stages[0].replicas);
  EXPECT_EQ(53, least_memory_budget(p));
}

// A value that two layers keep counts once in a stage that has both, and in both stages of a cut between
// them.
TEST(Partition, SharedActivationsCountOncePerStage) {
  PartitionProblem p{.layers = {{"a", 1, 1}, {"b", 1, 1}, {"c", 1, 1}},
                     .schedule = make_schedule("gpipe", {.stages = 2}),
                     .optimizer_copies = 1};
  keep(p.layers, {0, 2}, 100);
  keep(p.layers, {1}, 10);
  keep(p.layers, {}, 1000);
  const auto resident = [&](int cut) {
    const Partition at = partition_at(p, {cut});
    return std::pair(at.stages[0].resident_bytes, at.stages[1].resident_bytes);
  };
  EXPECT_EQ(std::pair(100.0, 110.0), resident(1));
  EXPECT_EQ(std::pair(110.0, 100.0), resident(2));
}

TEST(Partition, SaysWhenNoFinerCutExists) {
  PartitionProblem p{.layers = {{"a", 1, 1}, {"b", 3, 3}, {"c", 1, 1}},
                     .schedule = make_schedule("gpipe", {.stages = 2})};
  EXPECT_EQ("", why_uneven(p, partition_at(p, {2}))) << "a and b can be parted";
  EXPECT_EQ("stage 1 is one layer, b, with 1.80 times the mean work: no finer cut exists",
            (p.schedule = make_schedule("gpipe", {.stages = 3}), why_uneven(p, best_partition(p))));
  p.layers[1] = {"b", 1.2, 1.2};
  EXPECT_EQ("", why_uneven(p, best_partition(p))) << "1.125 times the mean";
}

// How far the period of the cost model may be from that of the simulator, in parts of it. Where waiting
// depends on the order of micro-batches, docs/pipelines.md tells the usual difference, and this is twice the
// largest.
struct Bound {
  double below = 0, above = 0;
};
Bound bound_of(const std::string& name, const PipelineShape& shape, bool has_link) {
  Bound bound{0.001, name == "plain" || shape.microbatches == 1 ? 0.001 : 0.15};
  if (name == "gpipe" || name == "1f1b" || name == "interleaved") bound = {0.3, 0.3};
  if (shape.chunks > 1) bound.above = shape.chunks - 1 + 0.2;
  if (name.starts_with("pipedream") && shape.lockstep) bound.above = 1;
  const bool dual = name.starts_with("dualpipe") || name == "spectrain";
  if (dual && !shape.lockstep && shape.microbatches > 1) bound = {0.06, name == "dualpipe-vs" ? 0.7 : 0.25};
  if (has_link) bound = {bound.below + 0.2, bound.above + 0.1};
  return bound;
}

TEST(Partition, PeriodAgreesWithTheSimulator) {
  auto rng = generator("partition");
  constexpr int kChains = 1000;
  double differences = 0;
  for (int i = 0; i < kChains; ++i) {
    Drawn d = drawn(rng);
    const PipelineShape& shape = d.shape;
    PartitionProblem& p = d.problem;
    p.spare_devices = 0;
    double seconds = 0;
    for (PipelineLayer& layer : p.layers) {
      layer.forward = draw_real(rng, 0.1, 1);
      layer.backward = draw_real(rng, 0.2, 2);
      layer.forward_bytes = layer.backward_bytes = draw_real(rng, 0.5, 1);
      seconds += layer.forward + layer.backward;
    }
    // A transfer takes up to a tenth of what a stage computes.
    const bool has_link = draw_bool(rng, 0.5);
    const double hop = 0.1 * seconds / shape.stages;
    p.link = has_link ? LinkModel{0.3 * hop / shape.microbatches, 1 / (0.7 * hop)} : LinkModel{};
    const Partition best = best_partition(p);
    StageProfile profile;
    profile.corun = p.corun;
    for (const PartitionedStage& s : best.stages)
      profile.stages.push_back({s.forward, s.backward, s.forward_bytes, s.weight_bytes});
    profile.link = {p.link.bandwidth, p.link.latency};
    const PipelineSimulation simulation = simulate_pipeline(profile, p.schedule, kSteadyBatches);
    const double simulated = simulation.period_ms;
    const Bound bound = bound_of(d.name, shape, has_link);
    SCOPED_TRACE(::testing::Message() << d.name << ", stages " << shape.stages << ", micro-batches "
                                      << shape.microbatches << (has_link ? ", link" : ""));
    EXPECT_GT(best.period, simulated * (1 - bound.below));
    EXPECT_LT(best.period, simulated * (1 + bound.above));
    differences += std::abs(best.period / simulated - 1);
    for (std::size_t k = 0; k < best.stages.size(); ++k) {
      EXPECT_EQ(best.stages[k].held, simulation.in_flight[k]) << "stage " << k;
      EXPECT_EQ(best.stages[k].versions, simulation.weight_versions[k]) << "stage " << k;
    }
  }
  EXPECT_LT(differences / kChains, 0.06);
}

}  // namespace
}  // namespace tandem::testing
