// tandem sim pipeline: what it prints, draws, and refuses.
#include <map>

#include <fmt/format.h>

#include <tandem/pipeline/schedules.h>

#include "cli.h"

namespace tandem::testing {
namespace {

using nlohmann::json;

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
  const std::string stage = R"({"forward_ms":1,"backward_ms":1,"activation_bytes":1,"weight_bytes":1)";
  const std::string replicated =
      write("replicated.json", fmt::format(R"({{"stages":[{0}}},{0},"replicas":2}}]}})", stage));
  const Ended two = run(kTandem + "sim pipeline --chunks 2 --microbatches 4 --profile " + replicated);
  EXPECT_EQ(0, two.status) << two.err;
  for (const std::string& name : schedule_names())
    EXPECT_EQ(name != "interleaved", two.out.find("\n" + name + " ") != std::string::npos) << name;
  EXPECT_NE(two.err.find("left out: interleaved: replicas of stages"), std::string::npos) << two.err;
  expect_refused(command("--batches 4 --microbatches 3"), {"4 batches", "or more"});
  expect_refused(command("--spectrain-target last"), {"target of predictions 'last'"});
}

TEST_F(CliSimPipeline, SaysWhichScheduleHasFewerDevices) {
  const std::string stage = R"({"forward_ms":1,"backward_ms":1,"activation_bytes":1,"weight_bytes":1})";
  const std::string four = write("four.json", fmt::format(R"({{"stages":[{0},{0},{0},{0}]}})", stage));
  const std::string note = "interleaved has 2 devices, with several stages each; other schedules have 4";
  const auto table = [&](const std::string& schedules) {
    return run(kTandem + "sim pipeline --microbatches 2 --chunks 2 --profile " + four + " --schedule " +
               schedules)
        .out;
  };
  EXPECT_NE(std::string::npos, table("all").find(note)) << table("all");
  EXPECT_EQ(std::string::npos, table("interleaved").find(note));
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
  expect_refused(command("--schedule dualpipe --batches 1000000 --microbatches 8"),
                 {"--batches 1000000", "54 tasks", "at most 181818"});
  expect_refused(command("--schedule data --follow 1", R"(,"single_ms":7.5,"sync_bytes":1000)"),
                 {"--follow", "data", "no pipeline"});
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
