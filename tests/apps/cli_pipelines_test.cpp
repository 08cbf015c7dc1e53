// train_cifar --parallel pipeline, tandem sim pipeline, tandem plan pipeline: schedules by name and from
// files.
#include <algorithm>
#include <functional>
#include <map>

#include <fmt/format.h>

#include <tandem/pipeline/schedule_file.h>
#include <tandem/pipeline/schedules.h>

#include "cli.h"

namespace tandem::testing {
namespace {

using nlohmann::json;

class CliPipelines : public Cli {
 protected:
  std::string job(const std::string& options) const {
    return kTrain + "--arch mlp-residual --batch-size 16 --synthetic-train 128 --steps 6 --threads 1 " +
           options;
  }
  // The losses of a run with these options.
  std::vector<json> losses(const std::string& options, const std::string& output) const {
    const Ended e = run(job(options + " --output " + file(output)));
    EXPECT_EQ(0, e.status) << e.err;
    std::vector<json> losses;
    for (const json& line : metrics(output)) losses.push_back(line.at("loss"));
    EXPECT_EQ(6u, losses.size());
    return losses;
  }
};

TEST_F(CliPipelines, SchedulesThatFlushHaveTheLossesOfOneDevice) {
  const auto one = losses("--microbatches 4", "one");
  EXPECT_EQ(one, losses("--microbatches 4 --stages 2 --schedule gpipe", "gpipe"));
  EXPECT_EQ(one, losses("--microbatches 4 --stages 4 --chunks 2 --schedule interleaved", "interleaved"));
  EXPECT_EQ(one, losses("--microbatches 4 --stages 2 --chunks 2 --schedule interleaved", "one-device"));
}

TEST_F(CliPipelines, AScheduleFromAFileTrainsLikeTheOneWithTheName) {
  for (const std::string name : {"1f1b", "pipedream-2bw", "dualpipe-vs"}) {
    const std::string schedule =
        write(name + ".json", engine::to_json(make_schedule(name, {.stages = 2, .microbatches = 2})));
    const std::string shape = "--parallel pipeline --stages 2 --microbatches 2 --schedule ";
    EXPECT_EQ(losses(shape + name, name),
              losses("--parallel pipeline --schedule " + schedule, name + "-file"));
    EXPECT_EQ(read(name + "/summary.json").at("test_accuracy"),
              read(name + "-file/summary.json").at("test_accuracy"));
  }
}

// By this profile the product of the images takes no time, so the first stage has more of the others.
TEST_F(CliPipelines, CutsByMeasuredKernelsAndKeepsTheCutsWhenItResumes) {
  const std::string pipeline = "--parallel pipeline --stages 2 --schedule pipedream ";
  const auto cuts = [&](const std::string& output) { return read(output + "/plan.json").at("cuts"); };
  ASSERT_TRUE(succeeds(job(pipeline + "--simulate --output " + file("sim"))));
  json seconds = read("sim/profile.json");
  for (auto& [key, value] : seconds.items())
    if (key.find("3072") != std::string::npos) value = 0;
  const std::string profile = " --profile " + write("free-images.json", seconds.dump());
  losses(pipeline + "--ranks 2 --batch-size 32 --allreduce ddp" + profile,
         "buckets");  // none crosses the cut
  losses(pipeline, "default");
  const auto whole = losses(pipeline + "--checkpoint-every 3" + profile, "whole");
  EXPECT_EQ(json{"block0"}, cuts("default"));
  EXPECT_NE(json{"block0"}, cuts("whole"));
  EXPECT_NE(json{"block0"}, cuts("buckets"));

  const std::string from = "--checkpoint-every 3 --resume " + file("whole/checkpoints/step-3") + " --output ";
  for (const std::string& options : {std::string(), " --profile " + file("sim/profile.json")}) {
    const Ended e = run(job(pipeline + from + file("rest") + " --force" + options));
    ASSERT_EQ(0, e.status) << e.err;
    EXPECT_EQ(std::string::npos, e.out.find("warning")) << e.out;
    EXPECT_EQ(cuts("whole"), cuts("rest"));
    EXPECT_EQ(read("whole/summary.json").at("test_accuracy"), read("rest/summary.json").at("test_accuracy"));
    EXPECT_EQ(whole.back(), metrics("rest").back().at("loss"));
  }
  const std::string plan = write("plan.json", R"({"cuts": ["block0"]})");
  const Ended other = run(job(pipeline + from + file("other") + " --plan " + plan));
  ASSERT_EQ(0, other.status) << other.err;
  EXPECT_NE(std::string::npos, other.out.find("cuts block0, was block")) << other.out;
}

// The Loader refuses to fill another number of rows.
TEST_F(CliPipelines, AReplicaIsMeasuredWithItsShareOfABatch) {
  const std::string stages = "--parallel pipeline --stages 2 --microbatches 2 --schedule gpipe --simulate ";
  ASSERT_TRUE(succeeds(job(stages + "--output " + file("one"))));
  ASSERT_TRUE(succeeds(job(stages + "--batch-size 32 --ranks 2 --output " + file("two"))));
  const json one = read("one/profile.json"), two = read("two/profile.json");
  for (const auto& [kernel, ms] : one.items()) EXPECT_TRUE(two.contains(kernel)) << kernel;
}

TEST_F(CliPipelines, WhatAProfileCannotDoIsRefused) {
  const std::string pipeline = "--parallel pipeline --stages 2 ", empty = write("empty.json", "{}");
  expect_refused(job(pipeline + "--profile " + empty), {"the profile has no", "measure"});
  expect_refused(job("--profile " + empty), {"--profile", "no effect", "stages"});
  expect_refused(job(pipeline + "--profile " + file("none.json")), {"none.json"});
}

TEST_F(CliPipelines, WhatAScheduleCannotTakeIsRefused) {
  const std::string pipeline = "--parallel pipeline ";
  expect_refused(job(pipeline + "--stages 4 --chunks 2"),
                 {"--chunks has no effect with --schedule 1f1b; it is for interleaved"});
  expect_refused(job(pipeline + "--spectrain-target serial --schedule dualpipe"),
                 {"--spectrain-target has no effect with --schedule dualpipe; it is for spectrain"});
  expect_refused(job(pipeline + "--stages 3 --chunks 2 --schedule interleaved"),
                 {"3 stages", "multiple of 2"});
  expect_refused(job(pipeline + "--stages 4 --chunks 2 --schedule interleaved --microbatches 1"),
                 {"multiple of 2"});
  expect_refused(job(pipeline + "--stages 2 --schedule pipedream-2bw"), {"2 or more micro-batches"});
  const std::string two =
      write("two.json", engine::to_json(make_schedule("1f1b", {.stages = 2, .microbatches = 2})));
  expect_refused(job(pipeline + "--lockstep --schedule " + two), {"--lockstep", "with --schedule FILE.json"});
  expect_refused(job(pipeline + "--chunks 2 --schedule " + two), {"--chunks", "it is for interleaved"});
  expect_refused(job("--chunks 2"), {"--chunks", "without --parallel pipeline"});
  expect_refused(job(pipeline + "--lockstep --schedule dualpipe-async"),
                 {"--lockstep contradicts --schedule dualpipe-async", "leave out one"});
  expect_refused(job("--schedule dualpipe-async"), {"--schedule", "without --parallel pipeline"});
  expect_refused(job(pipeline + "--stages 100"), {"100 stages need 99 cuts", "only before block0"});
  expect_refused(job(pipeline + "--microbatches 4 --synthetic-train 130"),
                 {"130 images", "last batch of 2", "4 micro-batches", "--drop-last"});
}

TEST_F(CliPipelines, WithoutLockstepANameRunsFreely) {
  EXPECT_EQ(losses("--stages 2 --schedule dualpipe", "free"),
            losses("--stages 2 --schedule dualpipe-async", "async"));
  EXPECT_EQ("dualpipe", read("async/args.json").at("schedule"));
}

// The first two steps of each epoch of eight have no number of two updates before, the last step of the run
// has all.
TEST_F(CliPipelines, MeasuredPredictionsAreInTheMetricsAndChangeNoLoss) {
  for (const std::string where : {"", "--stages 2 --schedule spectrain "}) {
    const std::string output = where.empty() ? "one" : "two";
    EXPECT_EQ(losses(where, "un" + output), losses(where + "--measure-prediction 1,2", output));
    const std::vector<json> lines = metrics(output);
    EXPECT_FALSE(lines.at(0).contains("prediction"));
    EXPECT_EQ(where.empty() ? 1u : 2u, lines.at(1).at("prediction").size());
    const json& last = lines.back().at("prediction");
    EXPECT_EQ(where.empty() ? 2u : 4u, last.size());
    EXPECT_EQ(where.empty() ? 0 : 1, last.back().at("stage"));
    EXPECT_EQ(2, last.back().at("updates"));
    EXPECT_GT(last.back().at("stale_rmse"), last.back().at("predicted_rmse"));
    EXPECT_GT(last.back().at("predicted_rmse"), 0);
  }
  expect_refused(job("--measure-prediction 1"), {"--measure-prediction", "without --output"});
  expect_refused(job("--measure-prediction 2,1,2 --output " + file("none")),
                 {"--measure-prediction", "given once", "2,1,2"});
  expect_refused(job("--measure-prediction 1 --momentum 0 --output " + file("none")), {"momentum", "is 0"});
}

// ---- What is typed as a schedule ----------------------------------------------------------------

// For two stages.
class CliSchedules : public Cli {
 protected:
  std::string simulated(const std::string& options) const {
    const std::string stage = R"({"forward_ms":1,"backward_ms":2,"activation_bytes":40,"weight_bytes":80})";
    return kTandem + "sim pipeline --batches 20 --profile " +
           write("stages.json", fmt::format(R"({{"stages":[{0},{0}]}})", stage)) + " --schedule " + options;
  }
  std::string planned(const std::string& options) const {
    json layers = json::array();
    for (const char* name : {"a", "b", "c"})
      layers.push_back({{"name", name},
                        {"forward_ms", 1},
                        {"backward_ms", 2},
                        {"activation_bytes", 4},
                        {"resident_bytes", 4},
                        {"weight_bytes", 4}});
    return kTandem + "plan pipeline --stages 2 --profile " +
           write("layers.json", json{{"layers", layers}}.dump()) + " --schedule " + options;
  }
  static std::string trained(const std::string& options) {
    return kTrain + "--arch mlp --parallel pipeline --stages 2 --schedule " + options;
  }
  void expect_all_refuse(const std::string& options, const std::vector<std::string>& words) const {
    for (const std::string& command : {trained(options), simulated(options), planned(options)})
      expect_refused(command, words);
  }
  json printed(const std::string& command) const {
    const Ended e = run(command + " --json");
    EXPECT_EQ(0, e.status) << e.err;
    return e.status == 0 ? json::parse(e.out) : json();
  }
  std::string written(const engine::PipelineSchedule& schedule) const {
    return write("mine.json", engine::to_json(schedule));
  }
};

TEST_F(CliSchedules, FromAFileAreThoseWithTheName) {
  const PipelineShape shape{.stages = 2, .microbatches = 2, .lockstep = true};
  for (const std::string name : {"pipedream-2bw", "dualpipe", "spectrain"}) {
    const std::string own = written(make_schedule(name, shape));
    json rows = printed(simulated(own + "," + name + " --microbatches 2")).at("schedules");
    ASSERT_EQ(2u, rows.size());
    EXPECT_EQ(own, rows[0].at("schedule"));
    rows[0]["schedule"] = name;
    EXPECT_EQ(rows[1], rows[0]);
    EXPECT_EQ(rows[1], printed(simulated(name + " --microbatches 2")).at("schedules")[0]);
    EXPECT_EQ(printed(planned(name + " --microbatches 2")), printed(planned(own)));
  }
}

TEST_F(CliSchedules, HaveTheMicrobatchesOfTheirFile) {
  const std::string own = written(make_schedule("gpipe", {.stages = 2, .microbatches = 4}));
  const json rows = printed(simulated(own + ",gpipe")).at("schedules");
  EXPECT_EQ(json({4, 4}), rows[0].at("in_flight"));
  EXPECT_EQ(json({1, 1}), rows[1].at("in_flight"));
  const json replicated = printed(planned(own + " --replicate"));
  EXPECT_EQ(2u, replicated.at("stages").size());
  for (const char* other : {"1", "2"})
    expect_all_refuse(own + " --microbatches " + other,
                      {"mine.json' is for 4 micro-batches", "not for ", other});
}

TEST_F(CliSchedules, WithOtherStagesAreRefused) {
  const std::string three = written(make_schedule("1f1b", {.stages = 3}));
  expect_all_refuse(three, {"mine.json' is for 3 stages, not for 2"});
  expect_refused(planned(three + " --replicate"), {"mine.json' is for 3 stages, not for 2"});
  const std::string shared = written(make_schedule("interleaved", {.stages = 2, .chunks = 2}));
  expect_refused(planned(shared + " --replicate"), {"--replicate", "share a device"});
}

TEST_F(CliSchedules, ThatAreImpossibleNameTheTask) {
  using engine::Phase;
  const auto refuse = [&](const std::function<void(engine::PipelineSchedule&)>& change,
                          const std::vector<std::string>& words) {
    engine::PipelineSchedule schedule = make_schedule("dualpipe", {.stages = 2});
    change(schedule);
    std::vector<std::string> all = words;
    all.push_back("schedule '" + file("mine.json"));
    expect_all_refuse(written(schedule), all);
  };
  refuse(
      [](auto& s) {
        const auto at = [&](Phase phase, int stage) {
          return std::ranges::find_if(
              s.tasks, [&](const engine::Task& t) { return t.phase == phase && t.stage == stage; });
        };
        at(Phase::backward, 0)->lag = at(Phase::forward, 0)->lag;
      },
      {"backward of micro-batch 0 on stage 0", "needs the backward of micro-batch 0 on stage 1",
       "comes after it"});
  refuse([](auto& s) { s.tasks.pop_back(); }, {"no update of stage 1"});
  refuse([](auto& s) { s.tasks.push_back(s.tasks[1]); }, {"the forward of micro-batch 0 on stage 1 twice"});
  refuse([](auto& s) { s.stages[0].weights.forward_age = 1; },
         {"forward of micro-batch 0 on stage 0 reads weights that are 1 update old"});
  refuse([](auto& s) { s.stages[1].weights = {.forward_age = 1, .backward_predicts = 2}; },
         {"backward of micro-batch 0 on stage 1 predicts weights"});
}

TEST_F(CliSchedules, ThatAreNoneAreRefused) {
  expect_all_refuse("fifo", {"unknown schedule 'fifo'", "spectrain"});
  expect_all_refuse("fifo-async", {"unknown schedule 'fifo'"});
  expect_all_refuse("gpipe-async", {"'gpipe-async'", "give 'gpipe'"});
  expect_all_refuse(file("none.json"), {"schedule", "none.json", "No such file"});
  expect_all_refuse(write("text.json", "1f1b"), {"schedule", "text.json", "JSON"});
  expect_all_refuse(write("list.json", "[1]"), {"schedule", "list.json", "object"});
  expect_all_refuse(write("plan.json", R"({"cuts": ["b"]})"), {"schedule", "plan.json", "cuts"});
  expect_all_refuse("pipedream-2bw", {"'pipedream-2bw'", "2 or more micro-batches"});
}

// ---- tandem sim pipeline ------------------------------------------------------------------------

class CliSimPipeline : public Cli {
 protected:
  std::string command(const std::string& options, const std::string& rest = "") const {
    const std::string stage =
        R"({"forward_ms":1,"backward_ms":1.5,"activation_bytes":1000,"weight_bytes":4000})";
    const std::string profile =
        write("stages.json", fmt::format(R"({{"stages":[{0},{0},{0}]{1}}})", stage, rest));
    return kTandem + "sim pipeline --profile " + profile + " " + options;
  }
  std::string printed(const std::string& options, const std::string& rest = "") const {
    const Ended e = run(command(options, rest));
    EXPECT_EQ(0, e.status) << e.err;
    return e.out;
  }
};

TEST_F(CliSimPipeline, PrintsJsonWithEveryOperation) {
  const json all = json::parse(printed("--schedule dualpipe,pipedream --batches 20 --json"));
  ASSERT_EQ(2u, all.at("schedules").size());
  const json& dual = all.at("schedules")[0];
  EXPECT_EQ("dualpipe", dual.at("schedule"));
  EXPECT_NEAR(2.5, dual.at("period_ms"), 1e-9);
  EXPECT_NEAR(3, dual.at("speedup"), 1e-9);
  EXPECT_EQ(json({5, 3, 1}), dual.at("in_flight"));
  EXPECT_EQ(json({1, 1, 1}), dual.at("weight_versions"));
  std::map<std::string, int> kinds;
  for (const json& op : dual.at("ops")) ++kinds[op.at("kind")];
  EXPECT_EQ((std::map<std::string, int>{{"F", 60}, {"B", 60}, {"UPDATE", 60}, {"SEND", 80}, {"RECV", 80}}),
            kinds);
  EXPECT_EQ(json({3, 2, 1}), all.at("schedules")[1].at("weight_versions"));
}

// Of one device and of data parallelism, the profile tells times and nothing of memory: 7.5 ms; and 1.2 · 7.5
// / 3 = 3 ms, then a ring over three devices, which sends 4/3 of 3,000 bytes in 4 messages: 4 · 0.25 + 4 = 5.
TEST_F(CliSimPipeline, PrintsNullForWhatIsNotKnown) {
  const json all = json::parse(printed("--schedule single,data --json",
                                       R"(,"single_ms":7.5,"data_compute_factor":1.2,"sync_bytes":3000,)"
                                       R"("link":{"bytes_per_ms":1000,"latency_ms":0.25})"));
  for (const json& row : all.at("schedules"))
    for (const char* unknown : {"peak_bytes", "staleness"}) EXPECT_TRUE(row.at(unknown).is_null()) << unknown;
  EXPECT_NEAR(7.5, all.at("schedules")[0].at("period_ms"), 1e-9);
  EXPECT_NEAR(8, all.at("schedules")[1].at("period_ms"), 1e-9);
  EXPECT_NEAR(5. / 8, all.at("schedules")[1].at("transfer"), 1e-9);
  const json pipeline = json::parse(printed("--schedule dualpipe --json")).at("schedules")[0];
  EXPECT_GT(pipeline.at("peak_bytes"), 0);
  EXPECT_EQ(4, pipeline.at("staleness"));
}

// Fig. 8 of the paper: where batch 5 of three stages meets which weights.
TEST_F(CliSimPipeline, DrawsTheWayOfABatchAsInFigure8) {
  const auto rows = [&](const std::string& schedule) {
    const std::string out = printed("--batches 20 --follow 5 --schedule " + schedule);
    return out.substr(out.find("\nunit ") + 1);
  };
  EXPECT_EQ(
      "unit      5     6     7           8     9     updates old\n"
      "stage 0   F W5                          B W9  F 4  B 0\n"
      "stage 1         F W6              B W8        F 2  B 0\n"
      "stage 2               F W7  B W7              F 0  B 0\n",
      rows("dualpipe"));
  EXPECT_EQ(
      "unit      5     6     7           8     9     updates old\n"
      "stage 0   F W5                          B W5  F 4  B 4\n"
      "stage 1         F W5              B W5        F 3  B 3\n"
      "stage 2               F W5  B W5              F 2  B 2\n",
      rows("dualpipe-vs"));
  EXPECT_EQ(
      "unit      5       6       7               8       9     updates old\n"
      "stage 0   F W5→9                                  B W9  F 4→0  B 0\n"
      "stage 1           F W6→9                  B W8→9        F 2→-1  B 0→-1\n"
      "stage 2                   F W7→9  B W7→9                F 0→-2  B 0→-2\n",
      rows("spectrain"));
  EXPECT_NE(
      std::string::npos,
      printed("--microbatches 4 --follow 5 --schedule pipedream-2bw").find("micro-batch 0 of batch 5 under"));
}

// Of three stages with 1 and 1.5 ms, two links carry 1,000 bytes each way.
TEST_F(CliSimPipeline, TakesAnotherLinkAndCorun) {
  const auto row = [&](const std::string& options) {
    return json::parse(printed(options + " --json")).at("schedules")[0];
  };
  EXPECT_NEAR(7.5, row("--schedule plain").at("period_ms"), 1e-9);
  EXPECT_NEAR(7.5 + 4 * 1.5, row("--schedule plain --link 1MB/s,500us").at("period_ms"), 1e-9);
  // The last stage takes 2.5 ms whatever ρ is; the others have 0.5 ms left.
  EXPECT_NEAR(1, row("--schedule dualpipe").at("busy"), 1e-9);
  EXPECT_NEAR((2.5 + 2 * 2) / 7.5, row("--schedule dualpipe --corun 0.8").at("busy"), 1e-9);
}

TEST_F(CliSimPipeline, SaysWhatItsNumbersRestOn) {
  const std::string whole = R"(,"single_ms":6.5,"sync_bytes":3000)";
  const std::string all = printed("", whole);
  for (const char* words : {"one after another, 7.500 ms; a whole batch on one device takes 6.500 ms",
                            "data computes for single_ms / 3", "without a link"})
    EXPECT_NE(std::string::npos, all.find(words)) << words << " is not in " << all;
  const std::string linked =
      printed("--link 1GB/s", R"(,"single_ms":6.5,"data_compute_factor":1.2,"sync_bytes":3000)");
  for (const char* words : {"data computes", "without a link"})
    EXPECT_EQ(std::string::npos, linked.find(words)) << linked;
  expect_refused(command("--schedule dualpipe,1f1b --batches 3"), {"dualpipe: ", "3 batches", "or more"});
  expect_refused(command("--schedule 1f1b,dualpipe --batches 3 --microbatches 2000"),
                 {"dualpipe: ", "3 batches"});  // before 1f1b takes seconds
  expect_refused(command("--schedule 1f1b-async"), {"'1f1b-async'", "give '1f1b'"});
  expect_refused(command("--schedule mine.json-async"), {"'mine.json-async'", "give 'mine.json'"});
}

TEST_F(CliSimPipeline, SaysWhenDevicesTakeTurns) {
  const std::string turns = "gpipe: 2 of 3 devices work at a time, since a batch is 2 micro-batches";
  EXPECT_NE(std::string::npos, printed("--schedule dualpipe,gpipe --microbatches 2").find(turns));
  EXPECT_EQ(std::string::npos, printed("--schedule dualpipe,gpipe --microbatches 3").find("at a time"));
}

TEST_F(CliPipelines, SayWhenDevicesTakeTurns) {
  const std::string turns = "of 2 devices work at a time";
  const auto warned = [&](const std::string& options) {
    const Ended e = run(job("--stages 2 --steps 1 " + options));
    EXPECT_EQ(0, e.status) << e.err;
    return (e.out + e.err).find(turns) != std::string::npos;
  };
  EXPECT_TRUE(warned("--schedule 1f1b"));
  EXPECT_FALSE(warned("--schedule 1f1b --microbatches 2"));
  EXPECT_FALSE(warned("--schedule dualpipe"));
  EXPECT_TRUE(warned("--schedule plain --microbatches 4")) << "each returns before the next begins";
}

// Bytes are counted by hand. One activation of 256 numbers per image crosses the cut.
TEST_F(CliSimPipeline, ReadsTheStagesOfASimulatedTraining) {
  const std::string train = kTrain +
                            "--arch mlp-residual --batch-size 16 --synthetic-train 64 --parallel "
                            "pipeline --stages 2 --schedule dualpipe --simulate --link 1GB/s,2ms ";
  ASSERT_TRUE(succeeds(train + "--output " + file("run")));
  const json profile = read("run/stages.json");
  ASSERT_EQ(2u, profile.at("stages").size());
  double weights = 0, ms = 0;
  for (const json& stage : profile.at("stages")) {
    EXPECT_GT(stage.at("forward_ms"), 0);
    EXPECT_GT(stage.at("backward_ms"), 0);
    ms += stage.at("forward_ms").get<double>() + stage.at("backward_ms").get<double>();
    weights += stage.at("weight_bytes").get<double>();
  }
  constexpr double kParameters = (3072 * 256 + 256) + 8 * (256 * 256 + 256) + (256 * 10 + 10);
  EXPECT_EQ(4 * kParameters, weights);
  EXPECT_EQ(weights, profile.at("sync_bytes"));
  EXPECT_EQ(4.0 * 16 * 256, profile.at("stages")[0].at("activation_bytes"));
  EXPECT_EQ(0.0, profile.at("stages")[1].at("activation_bytes"));
  EXPECT_GE(profile.at("corun"), 0.5);
  EXPECT_LE(profile.at("corun"), 1.0);
  EXPECT_GT(profile.at("single_ms"), ms / 4);
  EXPECT_LT(profile.at("single_ms"), ms * 4);
  EXPECT_EQ(1e6, profile.at("link").at("bytes_per_ms"));
  EXPECT_EQ(2, profile.at("link").at("latency_ms"));
  const Ended e = run(kTandem + "sim pipeline --batches 20 --profile " + file("run/stages.json"));
  EXPECT_EQ(0, e.status) << e.err;
  EXPECT_NE(std::string::npos, e.out.find("\ndualpipe ")) << e.out;
  // Times of another machine have no measured co-run, and nothing of one device.
  ASSERT_TRUE(succeeds(train + "--output " + file("again") + " --profile " + file("run/profile.json")));
  EXPECT_EQ(profile.at("stages"), read("again/stages.json").at("stages"));
  EXPECT_FALSE(read("again/stages.json").contains("single_ms"));
}

TEST_F(CliSimPipeline, RanksEverySchedule) {
  const std::string out =
      printed("--microbatches 3 --batches 20", R"(,"corun":0.8,"single_ms":7.5,"sync_bytes":1000)");
  for (const std::string& name : schedule_names())
    EXPECT_NE(std::string::npos, out.find("\n" + name + " ")) << name;
  EXPECT_LT(out.find("\ndualpipe "), out.find("\nspectrain "))
      << "as fast, and without predictions in memory";
  EXPECT_LT(out.find("\nspectrain "), out.find("\nplain "));
  EXPECT_LT(out.find("\ndata "), out.find("\nsingle ")) << "without a link, reducing costs nothing";
}

// With one micro-batch, two schedules cannot take three stages. All others are simulated, or none.
TEST_F(CliSimPipeline, LeavesOutOnlyWhatCannotTakeTheShape) {
  const Ended e = run(command("--batches 20"));
  EXPECT_EQ(0, e.status) << e.err;
  for (const std::string& name : schedule_names()) {
    const bool fits = name != "interleaved" && name != "pipedream-2bw";
    EXPECT_EQ(fits, e.out.find("\n" + name + " ") != std::string::npos) << name;
    EXPECT_EQ(fits, e.err.find("left out: " + name + ": ") == std::string::npos) << name;
  }
  expect_refused(command("--batches 4 --microbatches 3"), {"4 batches", "or more"});
  expect_refused(command("--spectrain-target last"), {"target of predictions 'last'"});
}

TEST_F(CliSimPipeline, RefusesWhatItCannotSimulate) {
  expect_refused(command("--schedule pipedream-2bw"), {"micro-batches", "3 or more"});
  expect_refused(command("--schedule interleaved --chunks 2"), {"3 stages", "multiple of 2"});
  expect_refused(command("--schedule interleaved --microbatches 2"), {"multiple of 3", "not 2"});
  expect_refused(command("--schedule 1f1b,single --chunks 3", R"(,"single_ms":7.5,"sync_bytes":1000)"),
                 {"--chunks has no effect with --schedule 1f1b,single; it is for interleaved"});
  expect_refused(command("--schedule dualpipe --spectrain-target serial"),
                 {"--spectrain-target has no effect with --schedule dualpipe; it is for spectrain"});
  expect_refused(command("--schedule data"), {"single_ms"});
  expect_refused(command("--schedule dualpipe,1f1b,dualpipe"), {"--schedule names 'dualpipe' twice"});
  expect_refused(command("--schedule dualpip"), {"'dualpip'", "dualpipe-vs", "FILE.json", "-async"});
  expect_refused(command("--schedule dualpipe --batches 4"), {"4 batches", "6 or more"});
  expect_refused(command("--schedule dualpipe --follow 200"), {"--follow 200", "200 batches"});
  for (const std::string drawing : {"--timeline", "--follow 5"})
    expect_refused(command("--schedule dualpipe --json " + drawing), {"--json has no drawings", "--follow"});
  expect_refused(command("--schedule dualpipe,plain --trace " + file("t.json")),
                 {"--trace", "one --schedule"});
  expect_refused(command("--schedule spectrain --spectrain-target last"), {"target of predictions 'last'"});
  expect_refused(kTandem + "sim pipeline", {"--profile"});
  expect_refused(kTandem + "sim pipeline --profile " + file("none.json"), {"none.json"});
}

TEST_F(CliSimPipeline, RefusesProfilesThatAreNotSound) {
  const auto refuse = [&](const std::string& text, const std::vector<std::string>& words) {
    expect_refused(kTandem + "sim pipeline --profile " + write("bad.json", text), words);
  };
  const std::vector<std::pair<std::string, std::string>> good{
      {"forward_ms", "1"}, {"backward_ms", "2"}, {"activation_bytes", "3"}, {"weight_bytes", "4"}};
  // A stage whose key has another value; "" leaves the key out.
  const auto refuse_stage = [&](const std::string& key, const std::string& value) {
    std::string stage;
    for (const auto& [name, number] : good)
      if (name != key || !value.empty())
        stage += fmt::format(R"({}"{}":{})", stage.empty() ? "" : ",", name, name == key ? value : number);
    refuse(fmt::format(R"({{"stages":[{{{}}}]}})", stage),
           {"bad.json", value == "NaN" || value == "1e999" ? "not valid JSON" : key});
  };
  for (const auto& [key, number] : good)
    for (const char* value : {"", "-1", "NaN", "1e999", "null", "\"1\""}) refuse_stage(key, value);
  refuse_stage("forward_ms", "0");
  refuse_stage("backward_ms", "0");
  refuse(R"({"stages":[]})", {"bad.json", "\"stages\" has 0"});
  refuse("{}", {"bad.json", "stages"});
  refuse(R"({"layers":[]})", {"bad.json", "is of layers", "tandem plan pipeline"});
  const std::pair<const char*, const char*> rest[] = {
      {R"("link":{"bytes_per_ms":0})", "bytes_per_ms"},
      {R"("link":{"bytes_per_ms":NaN})", "JSON"},
      {R"("link":{"latency_ms":1})", "bytes_per_ms"},
      {R"("link":{"bytes_per_ms":1,"latency_ms":-1})", "latency_ms"},
      {R"("corun":0)", "corun"},
      {R"("single_ms":0,"sync_bytes":1)", "single_ms"},
      {R"("single_ms":1)", "sync_bytes"},
      {R"("sync_bytes":1)", "single_ms"}};
  for (const auto& [entry, word] : rest)
    expect_refused(command("", fmt::format(",{}", entry)), {"stages.json", word});
}

}  // namespace
}  // namespace tandem::testing
