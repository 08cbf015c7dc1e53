// Memory plans of training steps: they change no bit, keep the budget, and cost what `replay` says.
#include <algorithm>
#include <cmath>
#include <numeric>

#include <gtest/gtest.h>

#include <tandem/core/base/memory.h>
#include <tandem/core/graph/graph_ops.h>
#include <tandem/core/runtime/sim_backend.h>
#include <tandem/core/schedule/verify.h>
#include <tandem/memory/buffer_assignment.h>
#include <tandem/memory/memory_explanation.h>
#include <tandem/memory/memory_planner.h>
#include <tandem/memory/memory_policies.h>
#include <tandem/memory/placement.h>
#include <tandem/memory/step_problem.h>
#include <tandem/nn/layers.h>
#include <tandem/nn/models/residual_lstm_net.h>
#include <tandem/nn/models/resnet.h>
#include <tandem/nn/models/vit.h>
#include <tandem/ops/copy.h>
#include <tandem/ops/pointwise.h>
#include <tandem/ops/shape.h>
#include <tandem/plan/build.h>
#include <tandem/plan/list_order.h>
#include <tandem/plan/memory_budget.h>
#include <tandem/train/trainer.h>

#include "class_dataset.h"
#include "memory_interpreter.h"
#include "seed.h"
#include "training_run.h"

namespace tandem::testing {
using namespace engine;
namespace {

Job resnet_job() {
  Job job = convolutional_job();
  job.model = [] { return std::make_unique<nn::ResNet>(nn::ResNetOptions{.classes = 5}); };
  job.batch_size = 16;
  return job;
}
Job vit_job() {
  Job job = convolutional_job();
  job.model = [] {
    return std::make_unique<nn::Vit>(nn::VitOptions{.image = 8,
                                                    .patch = 4,
                                                    .classes = 5,
                                                    .width = 12,
                                                    .hidden = 16,
                                                    .depth = 3,
                                                    .heads = 3,
                                                    .dropout = 0.1,
                                                    .attention_dropout = 0.1});
  };
  return job;
}
Job residual_lstm_job() {
  constexpr int kWords = 11;
  Job job = small_residual_job();
  job.sample = {6};
  job.model = [] {
    return std::make_unique<nn::ResidualLstmNet>(
        nn::ResidualLstmNetOptions{.words = kWords, .classes = 5, .width = 6, .cells = 8, .layers = 3});
  };
  job.forward = [](nn::Module& net, const Tensor& x) {
    return net(cast(clamp(scale(abs(x), kWords), 0, kWords - 1), DType::i32));
  };
  return job;
}
struct NamedJob {
  const char* name;
  Job job;
};
std::vector<NamedJob> jobs() {
  return {{"residual mlp", small_residual_job()},
          {"convnet", convolutional_job()},
          {"resnet20", resnet_job()},
          {"dropout", dropout_job()},
          {"vit", vit_job()},
          {"residual lstm", residual_lstm_job()}};
}

// A step in its list order, with costs drawn per signature, and its Program without a plan.
struct Step {
  ListedGraph listed;
  LowerOptions options;
  Program plain;
  std::vector<StepProblem> problems;
};

LowerOptions lower_options(const Strategy& s, std::uint64_t seed) {
  return {.devices = s.devices(),
          .replicas = s.replicas,
          .microbatches = s.microbatches,
          .kernels = s.kernels,
          .threads = s.threads,
          .cost = [seed](const Instruction& i) -> Cost {
            if (const auto* copy = as<LinkCopyOp>(i))
              return {static_cast<double>(align_up(i.outputs[0].bytes())) / copy->link.bytes_per_ms / 1e3};
            const auto drawn = std::hash<std::string>()(signature(*i.op, i.inputs)) ^ seed;
            return {1e-6 * static_cast<double>(1 + drawn % 1000)};
          }};
}
Program lowered(const ListedGraph& g, const LowerOptions& options) {
  return planned(lower(g.graph, g.order, assign_buffers(g.graph, g.order, g.keep), options, g.waits));
}

Step step_of(const Job& job, const Strategy& s, const CopyLink& link, std::uint64_t seed) {
  Step step{{planned_graph(trace_job(job, job.batch_size / s.replicas / s.microbatches), s), {}}, {}, {}, {}};
  step.listed.order = list_order(step.listed.graph, schedule_of(s).tasks, true);
  step.listed.keep = movable_values(step.listed.graph);
  step.options = lower_options(s, seed);
  step.plain = lowered(step.listed, step.options);
  const auto buffers = assign_buffers(step.listed.graph, step.listed.order, step.listed.keep);
  for (int d = 0; d < step.plain.devices; ++d)
    step.problems.push_back(step_problem(step.listed, buffers, step.plain, d, link));
  return step;
}

MemoryDecisions drawn_decisions(const MemoryProblem& p, std::mt19937_64& rng) {
  MemoryDecisions d = retain_all(p);
  for (const int v : candidates_of(p)) {
    Treatment& t = d.values[static_cast<std::size_t>(v)];
    t = static_cast<Treatment>(draw_int(rng, 0, 3));
    if (!plan_of(p, d, INT64_MAX)) t = Treatment::swap;  // it cannot be computed again
  }
  return d;
}

TEST(MemoryBudget, TheProgramOfAPlanHasItsPeakAndItsTime) {
  auto rng = generator("memory budget");
  int copies = 0, repeats = 0;
  for (const NamedJob& j : jobs())
    for (int i = 0; i < 12; ++i) {
      SCOPED_TRACE(::testing::Message() << j.name << ", plan " << i);
      const CopyLink link{.bytes_per_ms = std::pow(10, draw_real(rng, 3, 7)), .duplex = draw_bool(rng, 0.5)};
      const Step step = step_of(j.job, plain(), link, rng());
      const MemoryProblem& p = step.problems[0].problem;
      EXPECT_EQ(live_peak(step.plain), plan_of(p, retain_all(p), INT64_MAX)->cost.peak_bytes);
      const std::int64_t limit =
          static_cast<std::int64_t>(draw_real(rng, 0.3, 1) * static_cast<double>(live_peak(step.plain)));
      const auto plan = plan_of(p, drawn_decisions(p, rng), i % 3 == 0 ? INT64_MAX : limit);
      if (!plan) continue;
      for (const MemoryStep& s : plan->plan.steps) {
        copies += s.kind == MemoryStep::Kind::h2d;
        repeats += s.kind == MemoryStep::Kind::recompute;
      }
      expect_replays(p, *plan);
      const ListedGraph listed =
          apply_memory_plans(step.listed, step.problems, std::vector<MemoryPlan>{plan->plan});
      verify(listed.graph);
      const Program program = lowered(listed, step.options);
      verify(program);
      EXPECT_EQ(plan->cost.peak_bytes, live_peak(program));
      SimBackend sim(program);
      run(sim, 1);
      EXPECT_NEAR(plan->cost.time_ms, sim.now() * 1e3, 1e-9 * plan->cost.time_ms);
    }
  EXPECT_GT(copies, 100);
  EXPECT_GT(repeats, 100);
}

// Candidates (docs/decisions.md): a value and its views are one array, which is counted and moved once.
TEST(MemoryBudget, ViewsOfAValueAreNoFurtherCandidates) {
  struct Net : nn::Module {
    explicit Net(bool views) : views(views) {}
    Tensor forward(const Tensor& x) override {
      Tensor h = tanh(first(x));
      if (views) h = reshape(reshape(h, {h.size(0), 2, 3}), {h.size(0), 6});
      return second(h);
    }
    const bool views;
    nn::Linear first{*this, "first", {.in = 7, .out = 6}}, second{*this, "second", {.in = 6, .out = 5}};
  };
  const auto bytes_of_candidates = [](bool views) {
    Job job = small_residual_job();
    job.sample = {7};
    job.model = [=] { return std::make_unique<Net>(views); };
    const Step step = step_of(job, plain(), {}, 1);
    std::vector<std::int64_t> bytes;
    for (const int v : candidates_of(step.problems[0].problem))
      bytes.push_back(step.problems[0].problem.values[static_cast<std::size_t>(v)].bytes);
    return bytes;
  };
  EXPECT_FALSE(bytes_of_candidates(false).empty());
  EXPECT_EQ(bytes_of_candidates(false), bytes_of_candidates(true));
}

// Candidates: what makes a running statistic runs once a batch.
TEST(MemoryBudget, RunningStatisticsAreNotComputedAgain) {
  const Step step = step_of(resnet_job(), plain(), {}, 1);
  const auto& [problem, nodes, values] = step.problems[0];
  const CostedPlan plan = memory_policy("checkpoint").make(problem, live_peak(step.plain) / 2);
  const Graph& g = step.listed.graph;
  const auto readers = g.readers();
  int repeats = 0;
  for (const MemoryStep& s : plan.plan.steps) {
    if (s.kind != MemoryStep::Kind::recompute) continue;
    ++repeats;
    for (const ValueId out :
         g.node(nodes[static_cast<std::size_t>(s.graph)][static_cast<std::size_t>(s.node)]).outputs)
      for (const NodeId r : readers[out]) EXPECT_FALSE(as<AssignOp>(g.node(r))) << g.node(r).tag.path;
  }
  EXPECT_GT(repeats, 20);
}

TEST(MemoryBudget, ThePeriodOfARingHasItsPeakAndItsTime) {
  auto rng = generator("memory budget of rings");
  const std::vector<std::vector<int>> rings{{1, 1}, {2, 1}, {1, 1, 1}, {1, 2, 1, 1}};
  int copies = 0, repeats = 0;
  for (const NamedJob& j : jobs())
    for (int i = 0; i < 8; ++i) {
      SCOPED_TRACE(::testing::Message() << j.name << ", plan " << i);
      const CopyLink link{.bytes_per_ms = std::pow(10, draw_real(rng, 3, 7)), .duplex = draw_bool(rng, 0.5)};
      Strategy s = plain();
      s.arrays = rings[static_cast<std::size_t>(i) % rings.size()];
      s.models = std::accumulate(s.arrays.begin(), s.arrays.end(), 0);
      const Step step = step_of(with_models(j.job, s.models), s, link, rng());
      const MemoryProblem& p = step.problems[0].problem;
      ASSERT_EQ(s.arrays.size(), p.graphs.size());
      EXPECT_EQ(live_peak(step.plain), plan_of(p, retain_all(p), INT64_MAX)->cost.peak_bytes);
      MemoryDecisions d = drawn_decisions(p, rng);
      for (int g = 0; g < std::ssize(p.graphs); ++g) {
        const int forward = p.graphs[static_cast<std::size_t>(p.next_in_ring(g))].forward_nodes();
        int now = 0;
        for (int& before : d.forward_before[static_cast<std::size_t>(g)])
          before = now = draw_int(rng, now, std::min(forward, now + 2));
      }
      const std::int64_t limit =
          static_cast<std::int64_t>(draw_real(rng, 0.3, 1) * static_cast<double>(live_peak(step.plain)));
      const auto plan = plan_of(p, d, i % 3 == 0 ? INT64_MAX : limit);
      if (!plan) continue;
      expect_replays(p, *plan);
      for (const MemoryStep& m : plan->plan.steps) {
        copies += m.kind == MemoryStep::Kind::h2d;
        repeats += m.kind == MemoryStep::Kind::recompute;
      }
      const ListedGraph listed =
          apply_memory_plans(step.listed, step.problems, std::vector<MemoryPlan>{plan->plan});
      verify(listed.graph);
      const Program program = lowered(listed, step.options);
      verify(program);
      EXPECT_EQ(plan->cost.peak_bytes, live_peak(program));
      const auto seconds = [&](std::int64_t batches) {
        SimBackend sim(program);
        run(sim, batches);
        return sim.now();
      };
      EXPECT_NEAR(plan->cost.time_ms, (seconds(6) - seconds(5)) * 1e3, 1e-9 * plan->cost.time_ms);
    }
  EXPECT_GT(copies, 100);
  EXPECT_GT(repeats, 100);
}

// What the policies make of traced networks, of one array and of several.
TEST(MemoryBudget, PlansOfPoliciesReplay) {
  auto rng = generator("memory policies of networks");
  for (const NamedJob& j : jobs())
    for (const std::vector<int>& ring : std::vector<std::vector<int>>{{}, {1, 1}, {1, 1, 1}}) {
      const CopyLink link{.bytes_per_ms = std::pow(10, draw_real(rng, 4, 7)), .duplex = draw_bool(rng, 0.5)};
      Strategy s = plain();
      s.arrays = ring;
      s.models = std::max(1, std::accumulate(ring.begin(), ring.end(), 0));
      const Step step = step_of(with_models(j.job, s.models), s, link, rng());
      const MemoryProblem& p = step.problems[0].problem;
      const std::int64_t above = live_peak(step.plain) - p.static_bytes;
      for (const MemoryPolicy& policy : memory_policies()) {
        if (policy.name == "optimal" || policy.name == "checkmate") continue;  // for smaller graphs
        if (policy.name == "mu-two+" && ring.size() > 2) continue;             // it searches for seconds
        SCOPED_TRACE(::testing::Message()
                     << j.name << ", " << ring.size() << " arrays in a ring, " << policy.name);
        expect_replays(p, policy.make(p, p.static_bytes + above / 2));
      }
    }
}

// mu-two+ searches for seconds.
std::vector<double> shares_for(const std::string& policy) {
  if (policy.empty() || policy == "mu-two+") return {0.7};
  return {0.6, 0.7, 0.8, 0.9, 0.95};
}

TEST(MemoryBudget, PlansOfArraysChangeNoBit) {
  int cases = 0, saving = 0;
  for (const NamedJob& j : jobs())
    for (const std::string order : {"in turn", "pair", "ring"}) {
      const Job job = with_models(j.job, 3);
      Strategy s = plain();
      s.arrays = order == "ring" ? std::vector{1, 1, 1} : std::vector{2, 1};
      s.array_order = order == "in turn" ? ArrayOrder::in_turn : ArrayOrder::ring;
      const Outcome kept = train(job, s);
      for (const std::string policy : {"mu-two+", "mu-two", "capuchin", "checkpoint"})
        for (const double share : order == "in turn" ? std::vector{0.7} : shares_for(policy)) {
          if (policy == "mu-two+" && order == "in turn") continue;
          SCOPED_TRACE(::testing::Message() << j.name << ", " << order << ", " << policy << ", " << share);
          s.memory_plan = policy;
          s.copy_link = {.bytes_per_ms = policy == "checkpoint" ? 0 : 1e6};
          saving += expect_same_within(job, s, kept, share);
          ++cases;
        }
    }
  EXPECT_GT(saving, cases * 3 / 4) << "of " << cases;
}

TEST(MemoryBudget, PlansChangeNoBitAndKeepTheBudget) {
  int cases = 0, saving = 0;
  for (const NamedJob& j : jobs()) {
    const Outcome kept = train(j.job, plain());
    for (const std::string policy : {"", "checkpoint", "capuchin", "mu-two", "vdnn"})
      for (const double share : shares_for(policy)) {
        SCOPED_TRACE(::testing::Message() << j.name << ", " << policy << ", " << share);
        Strategy s = plain();
        s.memory_plan = policy;
        if (policy != "checkpoint") s.copy_link = {.bytes_per_ms = 1e6};
        saving += expect_same_within(j.job, s, kept, share);
        ++cases;
      }
  }
  EXPECT_GT(saving, cases * 3 / 4) << "of " << cases;
}

TEST(MemoryBudget, RanksStagesAndMicrobatchesHaveAPlanEach) {
  Job job = resnet_job();
  job.batch_size = 64;  // so that activations are most of the memory
  job.drains = {2, 1};
  for (const int replicas : {1, 2})
    for (const int stages : {1, 2})
      for (const int microbatches : {1, 2}) {
        SCOPED_TRACE(::testing::Message()
                     << replicas << " replicas, " << stages << " stages, " << microbatches);
        Strategy s = plain();
        s.replicas = replicas;
        s.stages = stages;
        s.microbatches = microbatches;
        if (stages > 1) s.schedule = "1f1b";
        const Outcome kept = train(job, s);
        s.memory_plan = microbatches == 1 && replicas == stages ? "mu-two+" : "mu-two";
        s.copy_link = {.bytes_per_ms = 1e6};
        EXPECT_TRUE(expect_same_within(job, s, kept, 0.9));
      }
}

// The policy `lists`, on one device, on two ranks, in stages, and for two models in a pair.
TEST(MemoryBudget, ListsArePlannedAndChangeNoBit) {
  const Job one = resnet_job();
  struct Case {
    int replicas, stages, models;
  };
  for (const auto& [replicas, stages, models] : {Case{1, 1, 1}, {2, 1, 1}, {1, 2, 1}, {1, 1, 2}}) {
    SCOPED_TRACE(::testing::Message()
                 << replicas << " ranks, " << stages << " stages, " << models << " models");
    const Job job = with_models(one, models);
    Strategy s = plain();
    s.replicas = replicas;
    s.stages = stages;
    s.models = models;
    if (stages > 1) s.schedule = "1f1b";
    if (models > 1) {
      s.arrays = {1, 1};
      s.array_order = ArrayOrder::ring;
    }
    const Outcome kept = train(job, s);
    s.memory_plan = "lists";
    s.swap = {"layer1.0", "layer2"};
    s.recompute = {"layer1.1", "layer3.2.conv1 conv2d"};
    s.copy_link = {.bytes_per_ms = 1e6};
    expect_same_training(kept, train(job, s));
    int swapped = 0, recomputed = 0;
    for (const DevicePlan& d : memory_plans(trace_job(job, job.batch_size / replicas), s))
      for (const ValueVerdict& v : explain(d.step.problem, d.plan.plan)) {
        const bool is_to_swap = v.made_by.starts_with("layer1.0") || v.made_by.starts_with("layer2");
        EXPECT_EQ(is_to_swap, v.is_swapped) << v.made_by;
        EXPECT_EQ(v.made_by.starts_with("layer1.1") || v.made_by == "layer3.2.conv1 conv2d", v.is_recomputed)
            << v.made_by;
        swapped += v.is_swapped;
        recomputed += v.is_recomputed;
      }
    EXPECT_GT(swapped, 4 * models);
    EXPECT_GT(recomputed, models);
  }
}

TEST(MemoryBudget, TheSmallestBudgetThatIsNamedKeepsTheHostBudget) {
  const Graph forward = trace_job(resnet_job(), resnet_job().batch_size);
  Strategy s = plain();
  s.memory_plan = "mu-two";
  s.copy_link = {.bytes_per_ms = 1e6};
  s.host_budget = s.memory_budget = 1;
  try {
    build(forward, s);
    ADD_FAILURE() << "it fits into a byte";
  } catch (const BudgetTooSmall& e) {
    s.memory_budget = e.smallest;
  }
  const Program p = build(forward, s);
  EXPECT_LE(planned_peak(p), s.memory_budget);
  EXPECT_EQ(0, p.memory[0].host);
}

TEST(MemoryBudget, PlansOfArraysOnTwoRanksChangeNoBit) {
  int cases = 0, saving = 0;
  for (const NamedJob& j : jobs())
    for (const std::vector<int>& arrays : std::vector<std::vector<int>>{{1, 1}, {1, 1, 1}}) {
      const Job job = with_models(j.job, static_cast<int>(arrays.size()));
      Strategy s = plain();
      s.replicas = 2;
      s.arrays = arrays;
      const Outcome kept = train(job, s);
      s.copy_link = {.bytes_per_ms = 1e6};
      for (const char* policy : {"mu-two", "vdnn"}) {
        SCOPED_TRACE(::testing::Message() << j.name << ", " << arrays.size() << " arrays, " << policy);
        s.memory_plan = policy;
        saving += expect_same_within(job, s, kept, 0.7);
        ++cases;
      }
    }
  EXPECT_GT(saving, cases / 2) << "of " << cases;
}

// Statistics and draws, which a repeated node must not change.
struct NormalizedDropping : nn::Module {
  nn::Linear first{*this, "first", {.in = 4, .out = 32}}, second{*this, "second", {.in = 32, .out = 32}};
  nn::BatchNorm norm0{*this, "norm0", {.channels = 32}}, norm1{*this, "norm1", {.channels = 32}};
  nn::Dropout drop0{*this, "drop0", 0.2}, drop1{*this, "drop1", 0.3};
  nn::Linear head{*this, "head", {.in = 32, .out = 3}};
  Tensor forward(const Tensor& x) override {
    return head(drop1(gelu(norm1(second(drop0(gelu(norm0(first(x)))))))));
  }
};

struct Learned {
  std::vector<StateDict> states;  // by model
  std::vector<std::vector<double>> losses;
  std::int64_t planned_peak = 0;
};

// Epochs of a batch of 32 and one of 12.
Learned train_short_batches(const Strategy& s) {
  std::vector<std::unique_ptr<NormalizedDropping>> nets;
  ModelArray models;
  for (int m = 0; m < s.models; ++m) {
    nets.push_back(std::make_unique<NormalizedDropping>());
    nets.back()->initialize(static_cast<std::uint64_t>(m + 1));
    models.push_back({.module = nets.back().get(), .lr = 0.05, .seed = static_cast<std::uint64_t>(10 + m)});
  }
  TrainerOptions o{.strategy = s, .batch_size = 32, .epochs = 3};
  Trainer trainer(models, std::make_shared<ClassDataset>(44, run_seed()), std::move(o));
  Learned learned;
  trainer.add({.batch = [&](const BatchResult& b) { learned.losses.push_back(b.loss); }});
  trainer.fit();
  for (const auto& net : nets) learned.states.push_back(net->state());
  learned.planned_peak = trainer.peaks().planned;
  return learned;
}

TEST(MemoryBudget, PlansOfShortLastBatchesChangeNoBit) {
  nn::set_default_dtype(DType::f32);
  for (const int replicas : {1, 2})
    for (const std::vector<int>& arrays : std::vector<std::vector<int>>{{1}, {1, 1}, {1, 1, 1}}) {
      Strategy s = plain();
      s.replicas = replicas;
      s.models = static_cast<int>(arrays.size());
      if (s.models > 1) s.arrays = arrays;
      const Learned kept = train_short_batches(s);
      EXPECT_EQ(6U, kept.losses.size());
      for (const std::string policy : {"mu-two+", "mu-two", "checkpoint", "vdnn"}) {
        if (policy == "mu-two+" && (replicas > 1 || s.models > 1)) continue;  // it searches for seconds
        SCOPED_TRACE(::testing::Message() << replicas << " ranks, " << s.models << " arrays, " << policy);
        s.memory_plan = policy;
        s.copy_link = {.bytes_per_ms = policy == "checkpoint" ? 0 : 1e6};
        s.memory_budget = 1;
        try {
          train_short_batches(s);
          ADD_FAILURE() << "it fits into a byte";
        } catch (const BudgetTooSmall& e) {
          s.memory_budget = e.smallest;
        }
        const Learned planned = train_short_batches(s);
        EXPECT_EQ(kept.losses, planned.losses);
        for (std::size_t m = 0; m < kept.states.size(); ++m)
          expect_same_state(kept.states[m], planned.states[m]);
        EXPECT_LE(planned.planned_peak, s.memory_budget);
        EXPECT_LT(planned.planned_peak, kept.planned_peak);
      }
    }
}

}  // namespace
}  // namespace tandem::testing
