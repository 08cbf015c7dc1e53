// Pipelines simulated from a profile of their stages: times by formula, weight versions by hand.
#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <tandem/core/base/error.h>
#include <tandem/core/schedule/program_json.h>
#include <tandem/pipeline/schedule_costs.h>
#include <tandem/pipeline/schedule_file.h>
#include <tandem/pipeline/schedules.h>
#include <tandem/plan/pipeline_simulation.h>
#include <tandem/plan/stage_program.h>

#include "expect_error.h"
#include "random_pipelines.h"
#include "seed.h"

namespace tandem::testing {
using namespace engine;
namespace {

StageProfile equal_stages(int n, double forward_ms = 1, double backward_ms = 1.5) {
  return {.stages =
              std::vector<StageCost>(static_cast<std::size_t>(n), {forward_ms, backward_ms, 4000, 40'000})};
}

PipelineSchedule lockstep(const std::string& name, int stages, int microbatches = 1) {
  return make_schedule(name, {.stages = stages, .microbatches = microbatches, .lockstep = true});
}

StageProfile random_stages(std::mt19937_64& rng, int n) {
  StageProfile profile = equal_stages(n);
  for (StageCost& s : profile.stages)
    s.forward_ms = draw_real(rng, 0.5, 2), s.backward_ms = draw_real(rng, 0.5, 4);
  profile.corun = draw_real(rng, 0.5, 1);
  return profile;
}

// max(F, B, ρ(F + B)) on every stage but the last, which works on one batch: F + B.
double dualpipe_period(const StageProfile& profile) {
  const StageCost& last = profile.stages.back();
  double longest = last.forward_ms + last.backward_ms;
  for (std::size_t k = 0; k + 1 < profile.stages.size(); ++k) {
    const double f = profile.stages[k].forward_ms, b = profile.stages[k].backward_ms;
    longest = std::max({longest, f, b, profile.corun * (f + b)});
  }
  return longest;
}

TEST(PipelineSimulation, LockstepPeriodsFollowTheFormulas) {
  auto rng = generator("pipeline simulation");
  for (int i = 0; i < 100; ++i) {
    const int n = draw_int(rng, 2, 6);
    const StageProfile profile = random_stages(rng, n);
    const double dual = dualpipe_period(profile);
    for (const char* name : {"dualpipe", "dualpipe-vs", "spectrain"})
      EXPECT_NEAR(dual, simulate_pipeline(profile, lockstep(name, n), 40).period_ms, 1e-9 * dual) << name;
    const StageProfile equal = equal_stages(n, draw_real(rng, 0.5, 2), draw_real(rng, 0.5, 2));
    const double single = 2 * std::max(equal.stages[0].forward_ms, equal.stages[0].backward_ms);
    for (const char* name : {"pipedream", "pipedream-vs"})
      EXPECT_NEAR(single, simulate_pipeline(equal, lockstep(name, n), 40).period_ms, 1e-9 * single) << name;
  }
}

TEST(PipelineSimulation, FlushedPeriodsFollowTheFormula) {
  for (int n : {1, 2, 3, 4})
    for (int m : {1, 2, 4, 8}) {
      const double expected = (m + n - 1) * 2.5 / m;
      for (const char* name : {"gpipe", "1f1b"})
        EXPECT_NEAR(
            expected,
            simulate_pipeline(equal_stages(n), make_schedule(name, {.stages = n, .microbatches = m}), 5)
                .period_ms,
            1e-9)
            << name << ", " << n << " stages, " << m << " micro-batches";
    }
}

// 2-stage DualPipe, F = 1, B = 1.5, ρ = ½: stage 1 takes 2.5 ms, and stage 0 has slack for the gradient.
TEST(PipelineSimulation, ATransferLengthensAUnitOnlyIfItIsLate) {
  StageProfile profile = equal_stages(2);
  profile.corun = 0.5;
  const auto period = [&](double latency_ms) {
    profile.link = {.bytes_per_ms = 1e15, .latency_ms = latency_ms};
    return simulate_pipeline(profile, lockstep("dualpipe", 2), 40).period_ms;
  };
  EXPECT_NEAR(2.5, period(0), 1e-9);
  EXPECT_NEAR(2.5, period(1), 1e-9) << "stage 0 ends its backward 1 + 1.5 ms after the unit began";
  // Units take 2.5 and 2.75 ms in turn: in the longer one stage 1 ends its backward 0.25 ms before the unit.
  EXPECT_NEAR(2.625, period(1.25), 1e-9);
}

// 2-stage DualPipe whose first stage needs the whole unit of 5 ms for F or for B. Neither end of a transfer
// of 1 ms keeps compute waiting for its memory.
TEST(PipelineSimulation, ATransferHasAUnit) {
  StageProfile profile = equal_stages(2);
  profile.corun = 0.5;
  profile.link = {.bytes_per_ms = 1e15, .latency_ms = 1};
  profile.stages[1].forward_ms = profile.stages[1].backward_ms = 1;
  for (const auto& [forward, backward] : {std::pair(5, 1), std::pair(1, 5)}) {
    profile.stages[0].forward_ms = forward, profile.stages[0].backward_ms = backward;
    for (const char* name : {"dualpipe", "dualpipe-vs", "spectrain"})
      EXPECT_NEAR(5, simulate_pipeline(profile, lockstep(name, 2), 40).period_ms, 1e-9)
          << name << " " << forward;
  }
}

// Where transfers in both directions meet they take twice as long on a link that carries one at a time.
TEST(PipelineSimulation, HalfDuplexLinksShareTheirRate) {
  StageProfile profile = equal_stages(2, 1, 1);
  profile.link = {.bytes_per_ms = 400, .latency_ms = 0};  // 10 ms a transfer
  const PipelineSchedule schedule = make_schedule("dualpipe", {.stages = 2});
  const double duplex = simulate_pipeline(profile, schedule, 60).period_ms;
  profile.link.duplex = false;
  const double half = simulate_pipeline(profile, schedule, 60).period_ms;
  EXPECT_NEAR(10, duplex, 1e-9);
  EXPECT_GT(half, 1.7 * duplex);
}

// ---- versions of weights ---------------------------------------------------------------------------------

bool is_dual(const std::string& name) { return name.starts_with("dualpipe") || name == "spectrain"; }

// A model of W_t in lockstep. In each tick a stage does forwards, backwards, or both, and then updates if the
// last backward of a batch was among them.
struct Model {
  std::string name;
  int n = 1, m = 1;
  SpecTrainTarget target = SpecTrainTarget::paper;

  std::int64_t tick(bool forward, int k, std::int64_t b, int i) const {
    if (is_dual(name)) return b + (forward ? k : 2 * n - 2 - k);
    return 2 * (name == "pipedream-2bw" ? b * m + i : b) + (forward ? k : 2 * n - 1 - k);
  }
  std::int64_t updates(int k, std::int64_t before) const {
    std::int64_t b = 0;
    while (tick(false, k, b, m - 1) < before) ++b;
    return b;
  }
  std::int64_t present(bool forward, int k, std::int64_t b, int i) const {
    return updates(k, tick(forward, k, b, i));
  }
  // Of the weights that F and B read, as the papers say it.
  std::int64_t read(bool forward, int k, std::int64_t b) const {
    if (name == "pipedream") return present(true, k, b, 0);  // those of the batch's forward
    if (name == "pipedream-vs")
      return present(true, 0, b, 0);  // those that stage 0 had at the batch's forward
    if (name == "pipedream-2bw") return std::max<std::int64_t>(0, b - 1);  // one update late
    if (name == "dualpipe-vs") return updates(k, b);                       // those of the begin of unit b
    if (is_dual(name)) return present(forward, k, b, 0);                   // the latest
    return b;                                                              // a flush: all batches before
  }
  std::int64_t used(bool forward, int k, std::int64_t b) const {
    if (name != "spectrain") return read(forward, k, b);
    if (target == SpecTrainTarget::effective) return updates(k, b + 2 * n - 2);
    if (target == SpecTrainTarget::paper) return read(forward, k, b) + (forward ? 2 * n - 2 - k : k);
    return read(forward, k, b) + (forward ? 2 * (n - 1 - k) : 0);
  }
};

bool is_forward(const SimulatedOp& op) { return op.kind == SimulatedOp::Kind::forward; }
bool computes(const SimulatedOp& op) { return is_forward(op) || op.kind == SimulatedOp::Kind::backward; }

std::string text_of(const Model& model, const SimulatedOp& op) {
  return fmt::format("{}, {} stages, {} micro-batches: {} {}.{} on stage {} at {} ms", model.name, model.n,
                     model.m, name_of(op.kind), op.batch, op.microbatch, op.stage, op.start_ms);
}

std::vector<Model> lagged_models(int n) {
  using enum SpecTrainTarget;
  std::vector<Model> models;
  for (const int m : {1, 3})
    for (const char* name : {"pipedream", "pipedream-vs", "dualpipe", "dualpipe-vs"})
      models.push_back({name, n, m});
  for (const SpecTrainTarget target : {paper, effective, serial})
    models.push_back({"spectrain", n, 1, target});
  for (const int m : {n, n + 1, 2 * n}) models.push_back({"pipedream-2bw", n, m});
  return models;
}

// From the first batch on, so that the warm-up is part of it.
TEST(PipelineSimulation, VersionsFollowTheModelOfUnits) {
  for (int n = 1; n <= 8; ++n)
    for (const Model& model : lagged_models(n)) {
      const std::int64_t batches = 2 * n + 6;
      const PipelineSimulation s = simulate_pipeline(
          equal_stages(n),
          make_schedule(model.name,
                        {.stages = n, .microbatches = model.m, .target = model.target, .lockstep = true}),
          batches);
      std::vector<int> versions(static_cast<std::size_t>(n), 0);  // that a stage keeps at once
      std::int64_t seen = 0;
      for (const SimulatedOp& op : s.ops) {
        if (!computes(op)) continue;
        const std::int64_t present = model.present(is_forward(op), op.stage, op.batch, op.microbatch);
        ASSERT_EQ(present, op.version) << text_of(model, op);
        ASSERT_EQ(model.used(is_forward(op), op.stage, op.batch), op.predicts) << text_of(model, op);
        int& kept = versions[static_cast<std::size_t>(op.stage)];
        kept = std::max(kept, static_cast<int>(present - model.read(is_forward(op), op.stage, op.batch)) + 1);
        ++seen;
      }
      EXPECT_EQ(2 * batches * n * model.m, seen);
      EXPECT_EQ(versions, s.weight_versions) << model.name << ", " << n << " stages";
    }
}

// In lockstep and freely, with transfers that take time. An update counts from the moment of its end on.
TEST(PipelineSimulation, EveryOpHasTheUpdatesOfItsStageAndTheWeightsOfItsRule) {
  for (int n = 1; n <= 4; ++n) {
    std::vector<Model> models = lagged_models(n);
    for (const char* name : {"plain", "gpipe", "1f1b", "interleaved"}) models.push_back({name, n, 2 * n});
    StageProfile profile = equal_stages(n);
    profile.link = {.bytes_per_ms = 8000, .latency_ms = 0.1};
    for (const Model& model : models)
      for (const bool lockstep : {false, true}) {
        const auto ops =
            simulate_pipeline(
                profile,
                make_schedule(
                    model.name,
                    {.stages = n, .microbatches = model.m, .target = model.target, .lockstep = lockstep}),
                2 * n + 6)
                .ops;
        for (const SimulatedOp& op : ops) {
          const auto updates = std::ranges::count_if(ops, [&](const SimulatedOp& u) {
            return u.kind == SimulatedOp::Kind::update && &u != &op && u.stage == op.stage &&
                   u.end_ms <= op.start_ms;
          });
          ASSERT_EQ(updates, op.version) << text_of(model, op);
          ASSERT_EQ(computes(op) ? model.used(is_forward(op), op.stage, op.batch) : op.version, op.predicts)
              << text_of(model, op);
        }
      }
  }
}

// ---- what is kept -------------------------------------------------------------------------------------

TEST(PipelineSimulation, HoldsWhatTheTableOfSchedulesSays) {
  for (int n = 1; n <= 6; ++n) {
    const auto held = [&](const std::string& name) {
      return simulate_pipeline(equal_stages(n), lockstep(name, n), 40);
    };
    const auto by_stage = [&](auto formula) {
      std::vector<int> values;
      for (int k = 0; k < n; ++k) values.push_back(formula(k));
      return values;
    };
    const auto ones = by_stage([](int) { return 1; }), single = by_stage([&](int k) { return n - k; }),
               dual = by_stage([&](int k) { return 2 * (n - 1 - k) + 1; });
    EXPECT_EQ(single, held("pipedream").in_flight);
    EXPECT_EQ(single, held("pipedream").weight_versions);
    EXPECT_EQ(by_stage([&](int) { return n; }), held("pipedream-vs").weight_versions);
    EXPECT_EQ(dual, held("dualpipe").in_flight);
    EXPECT_EQ(ones, held("dualpipe").weight_versions);
    EXPECT_EQ(dual, held("spectrain").in_flight);
    EXPECT_EQ(ones, held("spectrain").weight_versions);
    EXPECT_EQ(by_stage([&](int k) { return 2 * n - 1 - k; }), held("dualpipe-vs").weight_versions);
    const auto parts = [&](const std::string& name) {
      return simulate_pipeline(equal_stages(n), make_schedule(name, {.stages = n, .microbatches = 2 * n}),
                               10);
    };
    EXPECT_EQ(single, parts("1f1b").in_flight);
    EXPECT_EQ(single, parts("pipedream-2bw").in_flight);
    EXPECT_EQ(by_stage([](int) { return 2; }), parts("pipedream-2bw").weight_versions);
    EXPECT_EQ(by_stage([&](int) { return 2 * n; }), parts("gpipe").in_flight);
  }
}

// Two stages take turns: F, F, B, B, and the update of stage 0; that of stage 1 runs beside B.
TEST(PipelineSimulation, UpdatesTakeTheirTimeOncePerBatch) {
  for (const int microbatches : {1, 4}) {
    StageProfile profile = equal_stages(2);
    for (StageCost& stage : profile.stages) stage.update_ms = 1;
    const PipelineSchedule schedule = make_schedule("plain", {.stages = 2, .microbatches = microbatches});
    EXPECT_NEAR(2 * 1 + 2 * 1.5 + 1, simulate_pipeline(profile, schedule, 10).period_ms, 1e-9);
    EXPECT_NEAR(7, profile.batch_ms(), 1e-9);
  }
}

// Stage 0 has two devices: F 0.5, B 0.75, which reduce 4(r − 1)w/r = 80 kB in 80 ms. Then the next batch can
// begin. Stage 1 takes 1 + 1.5 ms.
TEST(PipelineSimulation, ReplicasShareTheWorkAndReduce) {
  StageProfile profile = equal_stages(2);
  profile.link = {.bytes_per_ms = 1000};
  profile.stages[0].activation_bytes = 0;
  profile.stages[0].replicas = 2;
  const PipelineSimulation s = simulate_pipeline(profile, make_schedule("plain", {.stages = 2}), 10);
  EXPECT_NEAR(0.5 + 1 + 1.5 + 0.75 + 80, s.period_ms, 1e-9);
  const double all = 3 * s.period_ms;  // of three devices
  EXPECT_NEAR(2 * (0.5 + 0.75) + (1 + 1.5), s.shares.busy * all, 1e-9);
  EXPECT_NEAR(2 * 80, s.shares.transfer * all, 1e-9);
  std::int64_t reduced = 0;
  for (const SimulatedOp& op : s.ops) {
    if (op.kind != SimulatedOp::Kind::all_reduce) continue;
    EXPECT_EQ(0, op.stage);
    EXPECT_EQ(reduced++, op.batch);
    EXPECT_EQ(op.batch, op.version) << "before its update";
    EXPECT_NEAR(80, op.end_ms - op.start_ms, 1e-9);
  }
  EXPECT_EQ(10, reduced);
  // Micro-batches are divided too, and reduced once.
  const PipelineSchedule gpipe = make_schedule("gpipe", {.stages = 2, .microbatches = 4});
  EXPECT_NEAR(0.5 / 4 + 1 + 1.5 + 0.75 / 4 + 80, simulate_pipeline(profile, gpipe, 10).period_ms, 1e-9);
}

// With several batches in flight replicas reduce once for as many batches as they are.
TEST(PipelineSimulation, ReplicasTakeBatchesInTurnIfSeveralAreInFlight) {
  StageProfile profile = equal_stages(2);
  profile.stages[0].replicas = profile.stages[1].replicas = 2;
  EXPECT_NEAR(2.5 / 2, simulate_pipeline(profile, lockstep("dualpipe", 2), 40).period_ms, 1e-9);
  profile.link = {.bytes_per_ms = 1000};
  profile.stages[0].activation_bytes = 0;
  profile.stages[1].weight_bytes = 0;
  EXPECT_NEAR(2.5 / 2 + 80 / 2, simulate_pipeline(profile, lockstep("dualpipe", 2), 40).period_ms, 1e-9);
}

// A transfer takes 1 + 4 ms; two replicas of the later stage have a link each for half of the bytes. Their
// all-reduce is over before they get their next batch.
TEST(PipelineSimulation, ReplicasHaveLinksOfTheirOwn) {
  StageProfile profile = equal_stages(2);
  profile.link = {.bytes_per_ms = 1000, .latency_ms = 1};
  profile.stages[1].weight_bytes = 0;
  profile.stages[1].replicas = 2;
  EXPECT_NEAR(1 + 3 + 0.5 + 0.75 + 3 + 1.5,
              simulate_pipeline(profile, make_schedule("plain", {.stages = 2}), 10).period_ms, 1e-9);
  expect_error(
      [&] {
        simulate_pipeline(profile,
                          make_schedule("interleaved", {.stages = 2, .microbatches = 2, .chunks = 2}), 10);
      },
      {"replicas", "several stages on one device"});
}

// 1f1b and gpipe hold one batch here, and each of two replicas its half. dualpipe's first stage holds three
// batches, of which a replica has up to two.
TEST(PipelineSimulation, AReplicaHoldsItsPartOrWholeBatches) {
  for (const auto& [name, stages, microbatches, batches] :
       {std::tuple("1f1b", 1, 1, 0.5), {"gpipe", 1, 2, 0.5}, {"dualpipe", 2, 1, 2.0}}) {
    StageProfile profile = equal_stages(stages);
    profile.stages[0].replicas = 2;
    const PipelineSchedule schedule = make_schedule(name, {.stages = stages, .microbatches = microbatches});
    const auto peak = [&](double bytes) {
      profile.stages[0].resident_bytes = bytes;
      return static_cast<double>(simulate_pipeline(profile, schedule, 10).peak_bytes);
    };
    EXPECT_NEAR(12e6 * batches, peak(24e6) - peak(12e6), 100) << name;
  }
}

TEST(PipelineSimulation, HoldsTheActivationsOfEachMicroBatch) {
  for (const auto& [name, microbatches, held] :
       {std::tuple("plain", 1, 1), {"plain", 4, 1}, {"gpipe", 4, 4}}) {
    const PipelineSchedule schedule = make_schedule(name, {.microbatches = microbatches});
    StageProfile profile = equal_stages(1);  // 4000 bytes cross, and so many are kept if nothing is said
    const auto peak = [&] { return simulate_pipeline(profile, schedule, 10).peak_bytes; };
    const std::int64_t before = peak();
    profile.stages[0].resident_bytes = 4000;
    EXPECT_EQ(before, peak());
    profile.stages[0].resident_bytes = 4e6;
    const std::int64_t less = peak();
    profile.stages[0].resident_bytes = 8e6;
    EXPECT_EQ(4'000'000 * held / microbatches, peak() - less) << name;
  }
}

// A stage whose B reads older weights than its F.
TEST(PipelineSimulation, StalenessIsThatOfForwardAndBackward) {
  PipelineSchedule schedule = make_schedule("dualpipe", {.stages = 2});
  EXPECT_EQ(2, simulate_pipeline(equal_stages(2), schedule, 10).staleness);
  schedule.stages[0].weights.backward_age = 6;
  EXPECT_EQ(5, simulate_pipeline(equal_stages(2), schedule, 10).staleness);
}

// What `check` accepts runs, reads the weights that the rules say, and holds what is estimated.
TEST(PipelineSimulation, RandomSchedulesKeepTheirRules) {
  auto rng = generator("random schedules that are simulated");
  for (int i = 0; i < 150; ++i) {
    const int stages = draw_int(rng, 1, 4), microbatches = draw_int(rng, 1, 3);
    const PipelineSchedule schedule = random_pipeline(rng, stages, microbatches);
    SCOPED_TRACE(::testing::Message() << i << ": " << to_json(schedule));
    check(schedule);
    StageProfile profile = random_stages(rng, stages);
    if (draw_bool(rng, 0.5)) profile.link = {1000, 0.1};
    const PipelineSimulation sim = simulate_pipeline(profile, schedule, 40);
    using Key = std::tuple<SimulatedOp::Kind, int, std::int64_t, int>;
    std::map<Key, const SimulatedOp*> ops;
    for (const SimulatedOp& op : sim.ops) ops[{op.kind, op.stage, op.batch, op.microbatch}] = &op;
    const auto expect_after = [&](const SimulatedOp& op, SimulatedOp::Kind kind, int stage) {
      EXPECT_GE(op.start_ms, ops.at({kind, stage, op.batch, op.microbatch})->end_ms - 1e-9);
    };
    for (const SimulatedOp& op : sim.ops) {
      const WeightRule& rule = schedule.stages[static_cast<std::size_t>(op.stage)].weights;
      const bool is_forward = op.kind == SimulatedOp::Kind::forward;
      if (!is_forward && op.kind != SimulatedOp::Kind::backward) continue;
      if (is_forward && op.stage > 0) expect_after(op, op.kind, op.stage - 1);
      if (!is_forward && op.stage + 1 < stages) expect_after(op, op.kind, op.stage + 1);
      if (!is_forward) expect_after(op, SimulatedOp::Kind::forward, op.stage);
      const bool as_forward = is_forward || !rule.backward_age;
      const int age = as_forward ? rule.forward_age : *rule.backward_age;
      EXPECT_EQ(std::max<std::int64_t>(0, op.batch + 1 - age) +
                    (as_forward ? rule.forward_predicts : rule.backward_predicts),
                op.predicts)
          << name_of(op.kind) << " of batch " << op.batch << " on stage " << op.stage;
    }
    for (int k = 0; k < stages; ++k) {
      EXPECT_EQ(weight_versions(schedule, k), sim.weight_versions[static_cast<std::size_t>(k)]) << k;
      EXPECT_EQ(held_activations(schedule, k), sim.in_flight[static_cast<std::size_t>(k)]) << k;
    }
  }
}

TEST(PipelineSimulation, RefusesProfilesThatAreNotSound) {
  const auto refuse = [](const std::string& text, const std::vector<std::string>& words) {
    expect_error([&] { stage_profile_of("profile", text); }, words);
  };
  const std::string stage = R"({"forward_ms":1,"backward_ms":1,"activation_bytes":8,"weight_bytes":8})";
  const auto with = [&](const std::string& rest) { return R"({"stages":[)" + stage + "]" + rest + "}"; };
  EXPECT_EQ(1u, stage_profile_of("profile", with("")).stages.size());
  refuse(R"({"stages":[]})", {"\"stages\" has 0"});
  refuse("{}", {"stages"});
  refuse(R"({"stages":[{"forward_ms":0,"backward_ms":1,"activation_bytes":8,"weight_bytes":8}]})",
         {"forward_ms", "0"});
  refuse(R"({"stages":[{"forward_ms":1,"backward_ms":NaN,"activation_bytes":8,"weight_bytes":8}]})",
         {"profile"});
  refuse(R"({"stages":[{"forward_ms":1,"backward_ms":1,"activation_bytes":-8,"weight_bytes":8}]})",
         {"activation_bytes"});
  refuse(R"({"stages":[{"forward_ms":1,"backward_ms":1,"activation_bytes":8}]})", {"weight_bytes"});
  refuse(R"({"stages":[{"forward_ms":1,"backward_ms":1,"activation_bytes":8,"weight_bytes":8,"x":1}]})",
         {"unknown key 'x'"});
  refuse(
      R"({"stages":[{"forward_ms":1,"backward_ms":1,"activation_bytes":8,"weight_bytes":8,"replicas":0}]})",
      {"replicas", "0"});
  refuse(with(R"(,"link":{"bytes_per_ms":0})"), {"bytes_per_ms"});
  refuse(with(R"(,"corun":0.3)"), {"corun", "0.5"});
  refuse(with(R"(,"sync_bytes":3)"), {"single_ms"});
  StageProfile written = equal_stages(3);
  written.stages[1].replicas = 2;
  const StageProfile read = stage_profile_of("profile", to_json(written));
  EXPECT_EQ(3u, read.stages.size());
  EXPECT_EQ(2, read.stages[1].replicas);
  EXPECT_EQ(4, read.devices());
  expect_error([] { simulate_pipeline(equal_stages(4), lockstep("dualpipe", 4), 7); },
               {"7 batches", "8 or more"});
  expect_error([] { simulate_pipeline(equal_stages(3), lockstep("dualpipe", 4), 40); }, {"4 stages", "3"});
}

}  // namespace
}  // namespace tandem::testing
