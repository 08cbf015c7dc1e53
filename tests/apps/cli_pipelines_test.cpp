// train_cifar --parallel pipeline, tandem sim pipeline, tandem plan pipeline: schedules by name and from
// files. The simulation itself is in cli_sim_pipeline_test.cpp.
#include <algorithm>
#include <functional>
#include <map>

#include <fmt/format.h>

#include <tandem/core/base/machine.h>
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
  EXPECT_EQ(engine::machine_name(), seconds.at("machine"));
  seconds["machine"] = "another, 3 cores";
  const std::string elsewhere = " --profile " + write("elsewhere.json", seconds.dump());
  const Ended foreign = run(job(pipeline + elsewhere + " --output " + file("foreign")));
  ASSERT_EQ(0, foreign.status) << foreign.err;
  EXPECT_NE(std::string::npos, foreign.out.find("is of another machine (another, 3 cores; this one is "))
      << foreign.out;
  EXPECT_EQ(json{"block0"}, cuts("foreign"));
  EXPECT_TRUE(succeeds(job(pipeline + "--simulate" + elsewhere)));
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

// dualpipe keeps one version. After batch 5 the pipeline drains, so batch 6 reads what six updates made, and
// so does batch 12 of a run that goes on.
TEST_F(CliPipelines, ATraceTellsTheUpdatesOfTheWholeTraining) {
  const std::string train = kTrain +
                            "--arch mlp-residual -b 16 --threads 1 --parallel pipeline --stages 2 --schedule "
                            "dualpipe --checkpoint-every 6 --trace --output " +
                            file("run") + " --steps ";
  for (const auto& [steps, drained] :
       {std::pair("12", std::vector{0, 6}), std::pair("15 --resume auto", std::vector{12})}) {
    ASSERT_TRUE(succeeds(train + steps));
    const json trace = read("run/trace.json");
    std::map<int, int> weights;  // of F of stage 0, by batch
    for (const json& event : trace.at("traceEvents"))
      if (const json& args = event.at("args");
          args.contains("weights") && event.value("cat", "") == "forward" && event.at("pid") == 0) {
        const int batch = args.at("batch"), read = args.at("weights");
        weights.try_emplace(batch, read);
        EXPECT_LE(read, batch);
      }
    for (const int batch : drained) {
      EXPECT_EQ(batch, weights.at(batch));
      EXPECT_EQ(batch, weights.at(batch + 1)) << "two units before the update of the first batch";
    }
  }
}

TEST_F(CliPipelines, WhatAProfileCannotDoIsRefused) {
  const std::string pipeline = "--parallel pipeline --stages 2 ", empty = write("empty.json", "{}");
  expect_refused(job(pipeline + "--profile " + empty),
                 {"profile '" + empty + "' is of another network", "is measured"});
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
         {"forward of micro-batch 0 on stage 0 reads weights of age 1"});
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

}  // namespace
}  // namespace tandem::testing
