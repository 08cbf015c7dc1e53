// Ranks as MPI processes give the same bits as ranks as threads. mpirun starts it with 2, 3, or 4 ranks.
#include <gtest/gtest.h>

#include <tandem/core/base/error.h>
#include <tandem/dist/data_parallel.h>
#include <tandem/dist/mpi_comm.h>
#include <tandem/nn/models/mlp.h>
#include <tandem/plan/build.h>

#include "expect_error.h"
#include "tied_network.h"
#include "training_run.h"

namespace tandem::testing {
using namespace engine;
namespace {

MpiSession* session = nullptr;

void expect_equal_to_threads(Strategy s, const std::vector<std::uint64_t>& seeds = {3},
                             const std::function<std::unique_ptr<nn::Module>()>& model = {}) {
  ASSERT_EQ(s.ranks(), session->size());
  if (const auto* sgd = std::get_if<SgdOptions>(&s.optimizer); sgd && sgd->momentum == 0)
    s.optimizer = SgdOptions{.momentum = 0.9, .weight_decay = 1e-3};
  s.models = static_cast<int>(seeds.size());
  Job job = small_residual_job();
  if (model) job.model = model;
  job.batch_size = 4 * session->size();
  job.drains = {5, 3};
  job.seeds = seeds;
  job.rates.assign(seeds.size(), 0.05);
  for (std::size_t m = 0; m < seeds.size(); ++m) job.rates[m] /= static_cast<double>(m + 1);
  job.rate_factor = [](std::int64_t batch) { return 1.0 / (1 + static_cast<double>(batch % 3)); };
  const Outcome processes = train(job, s, session->comm());
  EXPECT_EQ(0, processes.timeline.dropped);
  if (session->rank() != s.devices() - 1) return;
  const Outcome threads = train(job, s);
  expect_same_results(threads, processes);
}

TEST(MpiEquivalence, DataParallel) {
  expect_equal_to_threads({.replicas = session->size(), .microbatches = 2});
  expect_equal_to_threads(
      {.replicas = session->size(),
       .fusion_groups = {{{"head.weight", "head.bias"}, 2}, {{"stem.weight", "stem.bias"}}}});
}

// By each algorithm, in long and in short segments, with 1 to 3 threads, separate and together: the bits of
// separate all-reduces among threads.
TEST(MpiEquivalence, NoAllReduceChangesABit) {
  Job job = wide_residual_job();
  job.batch_size = 4 * session->size();
  job.drains = {2};
  Strategy s = plain();
  s.replicas = session->size();
  const auto layers = gradient_layers(trace_job(job, job.batch_size / s.replicas), s);
  const Outcome separate = train(job, s);
  for (const CollectiveAlgorithm algorithm : {CollectiveAlgorithm::direct, CollectiveAlgorithm::ring})
    for (const std::int64_t segment : {20'000, 1 << 20})
      for (const char* policy : {"wfbp", "se"})
        for (const int threads : {1, 2, 3}) {
          s.fusion_groups = fusion_groups(layers, policy);
          for (FusionGroup& group : s.fusion_groups) group.threads = threads;
          const Outcome processes =
              train(job, s, session->comm({.collective = algorithm, .segment_bytes = segment}));
          if (session->rank() == 0) expect_same_results(separate, processes);
        }
}

TEST(MpiEquivalence, SeveralModels) {
  expect_equal_to_threads({.replicas = session->size()}, {3, 8, 5});
  expect_equal_to_threads({.stages = session->size(), .schedule = "dualpipe"}, {3, 8});
}

TEST(MpiEquivalence, Pipelines) {
  for (const std::string& kind : schedule_names()) {
    if (kind == "interleaved") continue;  // below
    for (const bool lockstep : {false, true})
      expect_equal_to_threads({.microbatches = kind == "pipedream-2bw" ? 4
                                               : kind == "dualpipe"    ? 1
                                                                       : 2,
                               .stages = session->size(),
                               .schedule = kind,
                               .lockstep = lockstep});
  }
}

TEST(MpiEquivalence, PredictionsOfEveryTargetAndOptimizer) {
  for (const SpecTrainTarget target :
       {SpecTrainTarget::paper, SpecTrainTarget::effective, SpecTrainTarget::serial})
    for (const Optimizer& optimizer : std::vector<Optimizer>{
             SgdOptions{.momentum = 0.9, .nesterov = true}, SgdOptions{.momentum = 0.9, .rule = SgdRule::ema},
             SgdOptions{.momentum = 0.9, .rule = SgdRule::raw_ema},
             AdamOptions{.weight_decay = 1e-2, .decoupled = true}})
      expect_equal_to_threads({.stages = session->size(),
                               .schedule = "spectrain",
                               .spectrain_target = target,
                               .optimizer = optimizer,
                               .parameter_groups = {{.parameters = {"*.bias"}, .lr_scale = 3}}});
}

// The first stage's matrix is used on the second and on the last.
TEST(MpiEquivalence, StateUsedOnSeveralStages) {
  for (const std::string kind : {"1f1b", "pipedream", "dualpipe", "spectrain"}) {
    Strategy s{.microbatches = 2, .stages = session->size(), .schedule = kind};
    s.cuts = {"a", "b", "head"};
    s.cuts.erase(s.cuts.begin(), s.cuts.end() - (s.stages - 1));
    expect_equal_to_threads(s, {3}, [] { return std::make_unique<TiedNetwork>(); });
  }
}

// Two stages on each rank: the last one is on the last rank, as without chunks.
TEST(MpiEquivalence, Interleaved) {
  if (session->size() == 3) return;  // four samples per rank are no multiple of three micro-batches
  expect_equal_to_threads(
      {.microbatches = 4,
       .stages = 2 * session->size(),
       .chunks = 2,
       .schedule = "interleaved",
       .cuts = session->size() == 2 ? std::vector<std::string>{"block0.second", "block1", "block3"}
                                    : std::vector<std::string>{"block0", "block0.second", "block1",
                                                               "block1.second", "block2", "block3", "head"}});
}

// Of three ranks, all are stages.
TEST(MpiEquivalence, TwoReplicasOfStages) {
  const int replicas = session->size() % 2 == 0 ? 2 : 1, stages = session->size() / replicas;
  expect_equal_to_threads(
      {.replicas = replicas, .microbatches = 2, .stages = stages, .schedule = "1f1b", .swap = {"block0"}});
  expect_equal_to_threads(
      {.replicas = replicas, .stages = stages, .schedule = "dualpipe", .recompute = {"block3"}});
  for (const char* kind : {"1f1b", "dualpipe"})  // all-reduces cross barriers
    expect_equal_to_threads({.replicas = replicas, .stages = stages, .schedule = kind, .lockstep = true});
}

// Two replicas of two stages (under four ranks), two models, fusion groups, a swap, under a budget.
TEST(MpiEquivalence, AllFeaturesTogether) {
  const int replicas = session->size() % 2 == 0 ? 2 : 1;
  Strategy s{.replicas = replicas,
             .stages = session->size() / replicas,
             .schedule = "dualpipe",
             .swap = {"block0"},
             .memory_budget = 64 << 20};
  if (replicas > 1) s.fusion_groups = {{{"head.weight", "head.bias"}, 3}};
  expect_equal_to_threads(s, {3, 8});
}

// What is planned would fit into the free memory if each rank had a machine of its own.
TEST(MpiEquivalence, RanksOfOneMachineCountTheirMemoryTogether) {
  const Strategy s = for_evaluation({.replicas = session->size()});
  Job job = small_residual_job();
  JobHost host(job, session->size());
  const auto program_of_samples = [&](std::int64_t n) { return build(trace_job(job, n), s); };
  const double per_sample = static_cast<double>(planned_peak(program_of_samples(1 << 20), 0)) / (1 << 20),
               planned = 1.2 * static_cast<double>(free_memory()) / session->size();
  const Program large = program_of_samples(static_cast<std::int64_t>(planned / per_sample));
  std::vector<std::unique_ptr<Comm>> comms;
  comms.push_back(session->comm());
  expect_error([&] { Session(large, std::move(comms), host); },
               {"out of memory", "GB on " + std::to_string(session->size()) + " ranks", "GB are free"});
}

// Rank 1 has another optimizer, other groups, or another model.
TEST(MpiEquivalence, RanksThatDisagreeOnTheProgramAreNamed) {
  const auto expect_refused = [](const Job& job, const Strategy& s, const std::string& what) {
    expect_error([&] { train(job, s, session->comm()); },
                 {"the ranks disagree on " + what + ": rank 1 has another value than rank 0"});
  };
  const Job job = small_residual_job();
  const bool differs = session->rank() == 1;
  Strategy s{.replicas = session->size()};
  s.optimizer = SgdOptions{.momentum = differs ? 0.5 : 0.9};
  expect_refused(job, s, "the Program");
  s.optimizer = SgdOptions{};
  if (differs) s.fusion_groups = {{{"head.weight", "head.bias"}}};
  expect_refused(job, s, "the Program");
  s.fusion_groups.clear();
  Job other = job;
  if (differs)
    other.model = [] {
      return std::make_unique<nn::MlpResidual>(
          nn::MlpOptions{.in = 12, .hidden = 24, .classes = 5, .blocks = 4});
    };
  expect_refused(other, s, "the names or shapes of the model's state");
}

}  // namespace
}  // namespace tandem::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  tandem::engine::MpiSession mpi;
  tandem::testing::session = &mpi;
  return RUN_ALL_TESTS();
}
