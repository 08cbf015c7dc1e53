// Several Programs in one Session take turns on the same state, memory, and lanes.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <thread>

#include <gtest/gtest.h>

#include <tandem/core/base/error.h>
#include <tandem/core/graph/trace.h>
#include <tandem/core/runtime/session.h>
#include <tandem/dist/thread_comm.h>
#include <tandem/nn/models/convnet.h>
#include <tandem/nn/models/mlp.h>
#include <tandem/plan/build.h>

#include "expect_error.h"
#include "training_run.h"

namespace tandem::testing {
using namespace engine;
namespace {

struct Setting {
  const char* name;
  int replicas, stages;
  std::string schedule;
};

// Evaluates before, between and after two runs of training.
std::vector<std::vector<double>> evaluated_between_runs(const Job& job, const Setting& setting) {
  Strategy s;
  s.optimizer = SgdOptions{.momentum = 0.9};
  s.replicas = setting.replicas;
  s.stages = setting.stages;
  s.schedule = setting.schedule;
  if (s.stages == 2) s.cuts = {"block2"};
  const Graph forward = trace_job(job, job.batch_size / s.replicas);
  JobHost training(job, 1), evaluation(job, 1);
  Session session(build(forward, s), thread_comms(s.ranks()), training, {.poison = true});
  session.load(initial_state(job));
  const ProgramHandle evaluate = session.add(build(forward, for_evaluation(s)), evaluation);
  std::vector<std::vector<double>> losses;
  for (int round = 0; round < 3; ++round) {
    session.run(100 * round, 2, evaluate);  // on other samples
    for (int b = 0; b < 2; ++b)
      losses.push_back(evaluation.losses.at(static_cast<std::size_t>(100 * round + b)));
    if (round < 2) session.run(5 * round, 5);
  }
  EXPECT_EQ(session.planned_peak(), session.executed_peak());
  return losses;
}

TEST(Session, EvaluationSeesTheStateThatTrainingLeft) {
  const Job job = small_residual_job(DType::f64);
  const Setting plain{"plain", 1, 1, "plain"};
  const auto reference = evaluated_between_runs(job, plain);
  EXPECT_NE(reference[0], reference[2]) << "training must change something";
  for (const Setting& setting : {Setting{"two replicas", 2, 1, "plain"}, Setting{"two stages", 1, 2, "1f1b"},
                                 Setting{"both", 2, 2, "gpipe"}}) {
    SCOPED_TRACE(setting.name);
    const auto losses = evaluated_between_runs(job, setting);
    ASSERT_EQ(reference.size(), losses.size());
    for (std::size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(reference[i][0], losses[i][0], 1e-12);
  }
}

// Training and evaluation in separate Sessions, with the state copied between them, give the same bits.
TEST(Session, SharedStateEqualsCopiedState) {
  const Job job = small_residual_job();
  for (const std::string schedule : {"pipedream", "dualpipe"}) {
    SCOPED_TRACE(schedule);
    const auto shared = evaluated_between_runs(job, {"shared", 1, 2, schedule});
    Strategy s;
    s.optimizer = SgdOptions{.momentum = 0.9};
    s.stages = 2;
    s.schedule = schedule;
    s.cuts = {"block2"};
    const Graph forward = trace_job(job, job.batch_size);
    JobHost training(job, 1), evaluation(job, 1);
    Session trained(build(forward, s), thread_comms(s.ranks()), training);
    trained.load(initial_state(job));
    Session evaluated(build(forward, for_evaluation(s)), thread_comms(s.ranks()), evaluation);
    std::size_t next = 0;
    for (int round = 0; round < 3; ++round) {
      evaluated.load(trained.state());
      evaluated.run(100 * round, 2);
      for (int b = 0; b < 2; ++b)
        EXPECT_EQ(shared[next++], evaluation.losses.at(static_cast<std::size_t>(100 * round + b)));
      if (round < 2) trained.run(5 * round, 5);
    }
  }
}

Job batch_norm_job() {
  Job job = small_residual_job(DType::f64);
  job.sample = {8, 8, 3};
  job.model = [] {
    return std::make_unique<nn::ConvNet>(nn::ConvNetOptions{.classes = 5, .widths = {4, 8}});
  };
  return job;
}

// The losses of two evaluated batches in a Session that holds `state`.
std::vector<std::vector<double>> evaluated(Session& session, ProgramHandle program, const JobHost& host) {
  session.run(0, 2, program);
  return host.losses;
}

// Each replica gathers its own statistics; evaluation uses the network that `state` returns.
TEST(Session, ReplicasEvaluateWithTheStatisticsOfTheFirst) {
  const Job job = batch_norm_job();
  Job evaluation_job = job;
  evaluation_job.model = [make = job.model] {
    auto model = make();
    model->train(false);
    return model;
  };
  Strategy s;
  s.replicas = 2;
  s.stages = 2;
  s.cuts = {"block1"};
  s.schedule = "1f1b";
  JobHost training(job, 1), together(job, 1), alone(job, 1);
  Session session(program_of(job, s), thread_comms(s.ranks()), training);
  session.load(initial_state(job));
  const ProgramHandle evaluate =
      session.add(build(trace_job(evaluation_job, job.batch_size / 2), for_evaluation(s)), together);
  session.run(0, 3);

  Session one(program_of(job, {}), {}, training);
  const ProgramHandle evaluate_alone =
      one.add(build(trace_job(evaluation_job, job.batch_size), for_evaluation({})), alone);
  one.load(session.state());
  const auto expected = evaluated(one, evaluate_alone, alone), got = evaluated(session, evaluate, together);
  ASSERT_EQ(expected.size(), got.size());
  for (std::size_t b = 0; b < expected.size(); ++b) EXPECT_NEAR(expected[b].at(0), got[b].at(0), 1e-12);
}

TEST(Session, SaysWhatIsPlannedAndWhatIsFreeIfMemoryIsNotThere) {
  const Job job = small_residual_job();
  JobHost host(job, 1);
  const Program huge = build(trace_job(job, std::int64_t{1} << 30), for_evaluation(Strategy{}));
  expect_error([&] { Session(huge, {}, host); },
               {"out of memory", "the Program is planned with", "GB are free", "smaller batches"});
  Session session(program_of(job, Strategy{}), {}, host);
  expect_error([&] { session.add(huge, host); }, {"the Programs together are planned with", "are free"});
}

TEST(Session, BudgetCoversAllProgramsTogether) {
  const Job job = small_residual_job();
  Strategy s;
  s.optimizer = SgdOptions{.momentum = 0.9};
  JobHost host(job, 1);
  const Program training = program_of(job, s);
  // It has less state than training but more work: its own peak is below what both need together.
  const Program evaluation = build(trace_job(job, 16 * job.batch_size), for_evaluation(s));
  const auto needs = [&](std::int64_t budget) {
    Session session(training, thread_comms(training.ranks()), host, {.memory_budget = budget});
    session.add(evaluation, host);
    return session.planned_peak();
  };
  const std::int64_t both = needs(0);
  ASSERT_GT(both, planned_peak(training));
  ASSERT_GT(both, planned_peak(evaluation));
  EXPECT_EQ(both, needs(both));
  EXPECT_THROW(needs(both - 1), Error);
}

// Loads one state and runs, twice.
void expect_repeats(const Job& job, const Strategy& s) {
  JobHost host(job, s.microbatches);
  Session session(program_of(job, s), thread_comms(s.ranks()), host, {.poison = true});
  const auto run = [&] {
    host.losses.clear();
    session.load(initial_state(job));
    session.run(0, 7);
    session.run(7, 2);
    return std::pair(host.losses, session.state());
  };
  const auto [losses, state] = run();
  const auto [again, state_again] = run();
  ASSERT_EQ(9u, losses.size());
  EXPECT_EQ(losses, again);
  expect_same_state(state, state_again);
}

TEST(Session, TwoRunsFromTheSameStateGiveTheSameBits) {
  const Job job = batch_norm_job();
  for (const std::string schedule : {"plain", "gpipe", "1f1b", "pipedream", "dualpipe"})
    for (int stages : {1, 3})
      for (int replicas : {1, 2})
        for (int microbatches : {1, 2})
          for (bool off_device : {false, true}) {
            SCOPED_TRACE(::testing::Message()
                         << schedule << " stages " << stages << " replicas " << replicas << " microbatches "
                         << microbatches << " off device " << off_device);
            Strategy s;
            s.optimizer = SgdOptions{.momentum = 0.9};
            s.schedule = schedule;
            s.stages = stages;
            s.replicas = replicas;
            s.microbatches = microbatches;
            if (off_device) s.swap = {"block0"}, s.recompute = {"block1"};
            expect_repeats(job, s);
          }
}

TEST(Session, RefusesToRunWithoutStateBackwardsOrAnUnknownProgram) {
  const Job job = small_residual_job();
  JobHost host(job, 1);
  Session session(program_of(job, {}), {}, host);
  expect_error([&] { session.run(0, 1); }, {"call load"});
  auto state = initial_state(job);
  state.emplace("stem.unknown", state.begin()->second);
  expect_error([&] { session.load(state); }, {"no state 'stem.unknown'"});
  session.load(initial_state(job));
  expect_error([&] { session.run(0, -1); }, {"negative"});
  Session other(program_of(job, {}), {}, host);
  const ProgramHandle foreign = other.add(program_of(job, for_evaluation({})), host);
  expect_error([&] { session.run(0, 1, foreign); }, {"handle is of another session"});
}

// Also if the misfit comes last, on another stage.
TEST(Session, ARefusedLoadChangesNothing) {
  const Job job = small_residual_job();
  Strategy s;
  s.stages = 2;
  s.schedule = "1f1b";
  s.cuts = {"block2"};
  JobHost host(job, 2);
  Session session(program_of(job, s), thread_comms(s.ranks()), host);
  expect_error([&] { session.state(); }, {"has no state"});
  session.load(initial_state(job));
  const auto before = session.state();
  for (const auto& [path, value] : before) {
    SCOPED_TRACE(path);
    auto bad = initial_state(job);
    for (auto& [name, tensor] : bad) tensor = Tensor::full(tensor.type(), 7);
    bad.at(path) = Tensor::zeros({DType::f32, {1, 2, 3}});
    expect_error([&] { session.load(bad); }, {path});
    expect_same_state(before, session.state());
  }
}

TEST(Session, ADroppedProgramIsRefusedAndItsMemoryReused) {
  const Job job = small_residual_job();
  const Graph forward = trace_job(job, job.batch_size), large = trace_job(job, 16 * job.batch_size);
  JobHost host(job, 1);
  Session session(build(forward, {}), {}, host);
  session.load(initial_state(job));
  const std::int64_t alone = session.planned_peak();
  const ProgramHandle first = session.add(build(large, for_evaluation({})), host);
  const std::int64_t both = session.planned_peak();
  EXPECT_GT(both, alone);
  session.drop(first);
  EXPECT_EQ(alone, session.planned_peak());
  expect_error([&] { session.run(0, 1, first); }, {"dropped"});
  expect_error([&] { session.drop(first); }, {"dropped"});
  Session other(build(forward, {}), {}, host);
  other.add(build(forward, for_evaluation({})), host);
  const ProgramHandle foreign = other.add(build(forward, for_evaluation({})), host);
  expect_error([&] { session.drop(foreign); }, {"handle is of another session"});
  EXPECT_NE(first, session.add(build(large, for_evaluation({})), host));
  EXPECT_EQ(both, session.planned_peak());
  const ProgramHandle second = session.add(build(forward, for_evaluation({})), host);
  session.run(0, 2);
  session.run(0, 2, second);
  session.drop({});  // what it declares of states stays
  session.run(0, 2, second);
  EXPECT_EQ(initial_state(job).size(), session.state().size());
}

TEST(Session, TheExecutedPeakHoldsWhatADroppedProgramTouched) {
  const Job job = small_residual_job();
  Job more = job;
  more.batch_size *= 16;
  JobHost host(job, 1), more_host(more, 1);
  Session session(build(trace_job(job, job.batch_size), {}), {}, host);
  session.load(initial_state(job));
  session.run(0, 2);
  const std::int64_t alone = session.executed_peak();
  const ProgramHandle large =
      session.add(build(trace_job(more, more.batch_size), for_evaluation({})), more_host);
  session.run(0, 1, large);
  const std::int64_t both = session.executed_peak();
  EXPECT_GT(both, alone);
  session.drop(large);
  EXPECT_EQ(session.executed_peak(), both);
}

TEST(Session, RefusesASnapshotOfOtherStatesAndSetsNothing) {
  const Job job = small_residual_job();
  Job wide = job;
  wide.model = [] {
    return std::make_unique<nn::MlpResidual>(
        nn::MlpOptions{.in = 12, .hidden = 24, .classes = 5, .blocks = 4});
  };
  JobHost host(job, 1), wide_host(wide, 1);
  Session session(program_of(job, {}), {}, host), other(program_of(wide, {}), {}, wide_host);
  expect_error([&] { session.snapshot(); }, {"no state"});
  session.load(initial_state(job));
  other.load(initial_state(wide));
  auto less = session.snapshot();
  less[0].erase(less[0].begin());
  for (const auto& snapshot : {Session::Snapshot{}, less, other.snapshot()})
    EXPECT_THROW(session.restore(snapshot), Error);
  expect_same_state(initial_state(job), session.state());
  session.restore(session.snapshot());
  session.run(0, 1);
}

TEST(Session, AStopEndsOnlyOneRun) {
  const Job job = small_residual_job();
  const Graph forward = trace_job(job, job.batch_size);
  JobHost host(job, 1), evaluation(job, 1);
  Session session(build(forward, {}), {}, host);
  const ProgramHandle evaluate = session.add(build(forward, for_evaluation({})), evaluation);
  session.load(initial_state(job));
  session.stop("enough");
  EXPECT_THROW(session.run(0, 2), Aborted);
  session.run(0, 2);
  session.run(0, 2, evaluate);
  std::thread stopper([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    session.stop("enough");
  });
  EXPECT_THROW(session.run(0, 1'000'000), Aborted);
  stopper.join();
  expect_error([&] { session.run(0, 1); }, {"call load"});
  session.load(initial_state(job));
  session.run(0, 2, evaluate);
  session.run(0, 2);
}

TEST(Session, AfterAFailureOneRankContinuesAndSeveralExplainWhyNot) {
  struct FailsOnce : JobHost {
    using JobHost::JobHost;
    void fill(const HostInput& in) override {
      if (in.batch == 2 && fail.exchange(false)) throw Error("planted");
      JobHost::fill(in);
    }
    std::atomic<bool> fail = true;
  };
  const Job job = small_residual_job();
  for (int ranks : {1, 2}) {
    Strategy s;
    s.replicas = ranks;
    FailsOnce host(job, 1);
    Session session(program_of(job, s), thread_comms(s.ranks()), host);
    session.load(initial_state(job));
    expect_error([&] { session.run(0, 5); }, {"planted"});
    expect_error([&] { session.state(); }, {"has no state"});
    EXPECT_EQ(initial_state(job).size(), session.remains().size());
    session.load(initial_state(job));
    if (ranks == 1)
      session.run(0, 5);
    else
      expect_error([&] { session.run(0, 5); }, {"make another Session"});
  }
}

// The running means of the network are assigned by then, and set back.
TEST(Session, KeepsItsStateIfARunFailsBeforeTheFirstUpdate) {
  struct FailsAtAResult : JobHost {
    using JobHost::JobHost;
    void deliver(const HostResult& result) override {
      if (result.batch == at) throw Error("planted");
      JobHost::deliver(result);
    }
    std::int64_t at = -1;
  };
  const Job job = small_residual_job();
  for (int ranks : {1, 2}) {
    Strategy s;
    s.replicas = ranks;
    FailsAtAResult host(job, 1);
    Session session(program_of(job, s), thread_comms(s.ranks()), host);
    session.load(initial_state(job));
    session.run(0, 2);
    const StateDict before = session.state();
    struct Unreadable : JobHost {
      using JobHost::JobHost;
      void fill(const HostInput& in) override {
        JobHost::fill(in);
        if (in.name == "labels") std::ranges::fill(in.as<std::int32_t>(), 1000);
      }
    } unreadable(job, 1);
    const ProgramHandle bad = session.add(program_of(job, s), unreadable);
    expect_error([&] { session.run(2, 1, bad); }, {"label ", "outside the "});
    EXPECT_TRUE(session.has_state());
    expect_same_state(before, session.state());
    if (ranks > 1) continue;    // their Comms are aborted
    session.stop("too early");  // the next run ends before it begins, and takes nothing back
    expect_error([&] { session.run(2, 1); }, {"too early"});
    expect_same_state(before, session.state());
    session.run(2, 1);
    Session other(program_of(job, s), {}, host);
    other.load(before);
    other.run(2, 1);
    expect_same_state(other.state(), session.state());
    host.at = 4;  // after the update of batch 3
    expect_error([&] { session.run(3, 2); }, {"planted"});
    EXPECT_FALSE(session.has_state());
  }
}

TEST(Session, ModelLoadsTheTrainedState) {
  const Job job = small_residual_job();
  Strategy s;
  s.optimizer = SgdOptions{.momentum = 0.9};
  JobHost host(job, 1);
  Session session(program_of(job, s), thread_comms(s.ranks()), host);
  session.load(initial_state(job));
  session.run(0, 2);
  const auto trained = session.state();
  const auto model = job.model();
  model->load(trained);  // includes the optimizer's state, which the model does not have
  for (const auto& [path, tensor] : model->state())
    EXPECT_EQ(tensor.values(), trained.at(path).values()) << path;
}

TEST(Session, RefusesAProgramWithStateThatTheFirstLacks) {
  const Job job = small_residual_job();
  Strategy s;
  s.optimizer = SgdOptions{.momentum = 0.9};
  const Graph forward = trace_job(job, job.batch_size);
  JobHost host(job, 1);
  Session session(build(forward, for_evaluation(s)), thread_comms(s.ranks()), host);
  EXPECT_THROW(session.add(build(forward, s), host), Error);
}

TEST(Session, RefusesAProgramWithStateOnAnotherStage) {
  const Job job = small_residual_job();
  Strategy s;
  s.stages = 2;
  s.cuts = {"block2"};
  const Graph forward = trace_job(job, job.batch_size);
  JobHost host(job, 1);
  Session session(build(forward, s), thread_comms(s.ranks()), host);
  Strategy other = for_evaluation(s);
  other.cuts = {"block3"};
  expect_error([&] { session.add(build(forward, other), host); }, {"cut them at the same modules"});
}

TEST(Session, RefusesCommsOfWrongRanks) {
  const Job job = small_residual_job();
  JobHost host(job, 1);
  Strategy s;
  s.replicas = 2;
  const ThreadWorld world(2);
  const Program p = program_of(job, s);
  std::vector<std::unique_ptr<Comm>> twice, missing(2);
  for (int i : {0, 1}) twice.push_back(world.comm(i * 0));
  expect_error([&] { Session(p, std::move(twice), host); }, {"rank 0's"});
  expect_error([&] { Session(p, std::move(missing), host); }, {"missing"});
}

}  // namespace
}  // namespace tandem::testing
