// train_cifar --allreduce: policies that plan from bytes, and those that measure the run's first batches.
#include <fmt/format.h>

#include <tandem/pipeline/schedules.h>

#include "cli.h"

namespace tandem::testing {
namespace {

using nlohmann::json;

class CliPolicies : public Cli {
 protected:
  // Runs a job on two ranks, and returns what it printed.
  std::string train(const std::string& options, const std::string& output) const {
    const Ended e = run(job(options, output));
    EXPECT_EQ(0, e.status) << e.err;
    return e.out + e.err;
  }
  std::string job(const std::string& options, const std::string& output) const {
    return kTrain + "--arch mlp --threads 1 --parallel data --ranks 2 " + options + " --output " +
           file(output);
  }
  json loss(const std::string& output) const { return metrics(output).back()["loss"]; }
  std::vector<json> losses(const std::string& output) const {
    std::vector<json> losses;
    for (const json& line : metrics(output)) losses.push_back(line.at("loss"));
    return losses;
  }
  bool exists(const std::string& name) const { return std::filesystem::exists(file(name)); }
};

// On a busy machine the saved measurement may prove far off, and the run goes on to measure its own.
bool uses_saved_measurement(const std::string& out) {
  return out.find(" from a saved measurement: ") != std::string::npos ||
         out.find(" from the saved measurement") != std::string::npos;
}

const std::string kLink = "--link 1GB/s,50us --steps 44 ";

TEST_F(CliPolicies, ChangeNoBit) {
  train("--steps 4", "none");
  for (const std::string policy : {"se", "wfbp", "ddp", "auto"}) {
    train("--steps 4 --allreduce " + policy, policy);
    EXPECT_EQ(loss("none"), loss(policy)) << policy;
    EXPECT_FALSE(exists(policy + "/all-reduce.json"));
  }
  for (const std::string algorithm : {"direct", "ring"}) {
    train("--steps 4 --link 1GB/s,50us --collective " + algorithm, algorithm);
    EXPECT_EQ(loss("none"), loss(algorithm)) << algorithm;
  }
}

TEST_F(CliPolicies, RefuseWhatContradicts) {
  expect_refused(job("--collective tree", "x"), {"collective 'tree'", "auto, direct, or ring"});
  expect_refused(job("--allreduce fifo", "x"), {"--allreduce 'fifo'", "se, wfbp, ddp"});
  expect_refused(job("--allreduce mg-cf", "x"), {"--allreduce 'mg-cf'", "libra"});
  expect_refused(kTrain + "--steps 1 --allreduce se",
                 {"--allreduce has no effect", "one data-parallel rank"});
  const std::string groups =
      " --plan " + write("plan.json", R"({"fusion_groups": [["head.weight", "head.bias"]]})");
  expect_refused(job("--allreduce se" + groups, "x"), {"--allreduce se", "plan.json", "leave out one"});
  expect_refused(job("--dump-profile" + groups, "x"), {"--dump-profile", "plan.json", "leave out one"});
  expect_refused(job("--allreduce wfbp --comm-threads 2", "x"), {"--comm-threads has no effect", "wfbp"});
  expect_refused(job("--comm-threads 0", "x"), {"--comm-threads"});
  expect_refused(kTrain + "--parallel data --ranks 2 --dump-profile", {"--dump-profile", "--output"});
  expect_refused(kTrain + "--parallel data --ranks 2 --simulate --allreduce libra",
                 {"--allreduce", "--simulate"});
  EXPECT_FALSE(exists("x")) << "a refused run leaves no directory";
}

TEST_F(CliPolicies, PlanFromTheFirstBatches) {
  train(kLink, "none");
  const std::string out = train(kLink + "--allreduce libra --comm-threads 1,2 --trace", "libra");
  EXPECT_NE(out.find(" after 40 batches: "), std::string::npos) << out;
  EXPECT_EQ(loss("none"), loss("libra"));
  EXPECT_EQ(read("none/summary.json").at("test_accuracy"), read("libra/summary.json").at("test_accuracy"));
  const json profile = read("libra/all-reduce.json");
  EXPECT_EQ(profile.at("layers").size(), 6u);
  EXPECT_EQ(profile.at("table").size(), 2u);
  EXPECT_EQ(profile.at("run").at("ranks"), 2);
  EXPECT_GT(profile.at("run").at("measured_backward_ms").get<double>(), 0);
  EXPECT_FALSE(read("libra/trace.json").at("traceEvents").empty());
  const Ended plan =
      run(kTandem + "plan all-reduce --json --nodes 2 --profile " + file("libra/all-reduce.json"));
  EXPECT_EQ(0, plan.status) << plan.err;
}

// What planning tries may need more memory than the run.
TEST_F(CliPolicies, ABudgetForTheRunAloneIsEnough) {
  train("--steps 1", "run");
  const auto peak = read("run/summary.json").at("planned_peak_bytes").get<std::int64_t>();
  const std::string out = train(fmt::format("--steps 200 --memory-budget {}", peak), "budget");
  EXPECT_NE(out.find("the all-reduces are not planned: "), std::string::npos) << out;
  EXPECT_FALSE(exists("budget/all-reduce.json"));
}

TEST_F(CliPolicies, LongRunsPlanByDefault) {
  const std::string out = train("--steps 200", "long");
  EXPECT_NE(out.find(" after 40 batches: "), std::string::npos) << out;
  EXPECT_TRUE(exists("long/all-reduce.json"));
  EXPECT_EQ(std::string::npos, train("--steps 199", "short").find("all-reduces"));
  EXPECT_FALSE(exists("short/all-reduce.json"));
  EXPECT_EQ(read("short/args.json").at("allreduce"), "auto");
}

TEST_F(CliPolicies, TheProfileCanBeWrittenUnderAnyPolicy) {
  train(kLink, "none");
  for (const std::string policy : {"se", "horovod"}) {
    train(kLink + "--dump-profile --allreduce " + policy, policy);
    EXPECT_EQ(loss("none"), loss(policy));
    EXPECT_EQ(read(policy + "/all-reduce.json").at("run").at("policy"), policy);
  }
  const std::string out = train(kLink + "--plan " + file("se/all-reduce.json"), "planned");
  EXPECT_TRUE(uses_saved_measurement(out)) << out;
  EXPECT_EQ(loss("none"), loss("planned"));
  const Ended resumed = run(job("--link 1GB/s,50us --steps 46", "planned") + " --resume auto");
  ASSERT_EQ(0, resumed.status) << resumed.err;
  EXPECT_EQ(resumed.out.find("losses can differ"), std::string::npos) << resumed.out;
  const std::string saved = "--plan " + file("se/all-reduce.json");
  expect_refused(job("--allreduce wfbp " + saved, "x"), {"se/all-reduce.json", "--allreduce wfbp"});
  expect_refused(job("--dump-profile " + saved, "x"), {"se/all-reduce.json", "--dump-profile"});
  expect_refused(kTrain + saved, {"se/all-reduce.json", "one data-parallel rank"});
  json damaged = read("se/all-reduce.json");
  damaged["layers"][0]["compute_ms"] = -1;
  expect_refused(job("--plan " + write("damaged.json", damaged.dump()), "x"), {"damaged.json", "compute_ms"});
  damaged = read("se/all-reduce.json");
  damaged["run"]["link"] = "fast";
  expect_refused(job("--plan " + write("link.json", damaged.dump()), "x"),
                 {"link.json", "\"run\"", "'fast'"});
  damaged["run"]["link"] = "";
  damaged["run"]["collective"] = "zz";
  expect_refused(job("--plan " + write("collective.json", damaged.dump()), "x"),
                 {"collective.json", "\"run\"", "'zz'"});
  damaged.erase("run");
  expect_refused(job("--plan " + write("profile.json", damaged.dump()), "x"), {"profile.json", "\"run\""});
}

TEST_F(CliPolicies, AnUnfitMeasurementIsReportedBeforeTheFirstBatch) {
  train(kLink + "--dump-profile", "saved");
  const std::string plan = " -p 1 --plan " + file("saved/all-reduce.json");
  for (const int steps : {30, 44}) {
    const std::string out = train(fmt::format("--steps {}{}", steps, plan), fmt::format("other{}", steps));
    const std::size_t warning = out.find("the saved all-reduces do not fit this run: its link is 1GB/s");
    EXPECT_LT(warning, out.find("  loss ")) << out;
    EXPECT_EQ(steps == 30, out.find("not planned: 30 batches are left, and it takes 40") < out.size()) << out;
    EXPECT_EQ(steps == 44, out.find(" after 40 batches: ") < out.size()) << out;
  }
}

// What decides how backward computes must be the same. Older files do not say it.
TEST_F(CliPolicies, AMeasurementOfOtherSettingsIsUnfit) {
  train(kLink + "--dump-profile", "saved");
  const auto warned = [&](const std::string& options, const json& saved, const std::string& output) {
    return train(kLink + options + " --plan " + write(output + ".json", saved.dump()), output);
  };
  json saved = read("saved/all-reduce.json");
  EXPECT_TRUE(uses_saved_measurement(warned("", saved, "same")));
  expect_words(warned("--amp-dtype bf16", saved, "bf16"),
               {"do not fit this run: its precision: that of the model, not bf16", " after 40 batches: "});
  json older = saved;
  older["run"].erase("settings");
  older["run"].erase("machines");
  older["run"].erase("devices");
  older["run"]["stages"] = 1;
  expect_words(warned("", older, "older"),
               {"do not fit this run: an older version wrote it", " after 40 batches: "});
}

// A policy that measures nothing leaves the file, for a later resume.
TEST_F(CliPolicies, AContinuedRunThatDoesNotPlanKeepsTheMeasurement) {
  const std::string planned = "--link 1GB/s,50us --allreduce libra --steps ";
  train(planned + "42", "run");
  const std::string before = read_file(file("run/all-reduce.json"));
  const auto resumed = [&](const std::string& options) {
    const Ended e = run(job(options, "run") + " --resume auto");
    EXPECT_EQ(0, e.status) << e.err;
    return e.out;
  };
  resumed("--link 1GB/s,50us --allreduce wfbp --steps 50");
  EXPECT_EQ(before, read_file(file("run/all-reduce.json")));
  EXPECT_NE(resumed(planned + "52").find("not planned: 2 batches are left"), std::string::npos);
  EXPECT_EQ(before, read_file(file("run/all-reduce.json")));
  EXPECT_TRUE(uses_saved_measurement(resumed(planned + "100")));
}

// Five numbers of threads are fitted by curves. The run may have left out some of them.
TEST_F(CliPolicies, ARunWithManyNumbersOfThreadsCanBePlannedAgain) {
  const std::string options = kLink + "--comm-threads 1,2,4,8,16 ";
  train(options + "--allreduce libra", "run");
  const json saved = read("run/all-reduce.json");
  EXPECT_EQ(saved.at("run").at("comm_threads"), (json{1, 2, 4, 8, 16}));
  EXPECT_EQ(saved.count("contention"), 1);
  const std::string all = " all-reduce --profile " + file("run/all-reduce.json");
  for (const std::string command : {"plan", "sim"}) {
    const Ended e = run(kTandem + command + all);
    EXPECT_EQ(e.status, 0) << e.err;
  }
  const std::string out = train(options + "--plan " + file("run/all-reduce.json"), "planned");
  EXPECT_TRUE(uses_saved_measurement(out)) << out;
}

TEST_F(CliPolicies, RefuseASavedMeasurementThatHasNoEffect) {
  train(kLink + "--dump-profile", "saved");
  const std::string plan = " --plan " + file("saved/all-reduce.json");
  expect_refused(job("--allreduce ddp" + plan, "x"), {"all-reduce.json", "no effect with --allreduce ddp"});
  expect_refused(job("--simulate" + plan, "x"), {"all-reduce.json", "no effect with --simulate"});
  expect_refused(kTrain + "--arch mlp --steps 1" + plan, {"no effect with one data-parallel rank"});
}

// Resumed before and after its all-reduces are planned, a run has the bits of one that never stopped, and of
// one that plans nothing.
TEST_F(CliPolicies, AResumedRunUsesTheMeasurementOfItsCheckpoint) {
  const std::string link = "--link 1GB/s,50us --steps ";
  train(link + "60 --allreduce wfbp", "wfbp");
  for (const std::string steps : {"20", "42"}) {
    const std::string output = "run" + steps, planned = " --allreduce libra";
    train(link + steps + planned, output);
    const Ended e = run(job(link + "60" + planned, output) + " --resume auto");
    ASSERT_EQ(0, e.status) << e.err;
    EXPECT_EQ(steps == "42", uses_saved_measurement(e.out)) << e.out;
    EXPECT_EQ(losses("wfbp"), losses(output));
    for (const std::string part : {"model", "optimizer"}) {
      const auto state = [&](const std::string& of) {
        return read_file(file(of + "/checkpoints/step-60/" + part + ".safetensors"));
      };
      EXPECT_TRUE(state("wfbp") == state(output)) << part;
    }
  }
}

TEST_F(CliPolicies, ASavedPlanOfAnotherModelIsMeasuredAnew) {
  train(kLink + "--dump-profile", "mlp");
  const std::string plan = "--plan " + file("mlp/all-reduce.json"),
                    other = kTrain + "--arch mlp-residual --threads 1 --parallel data --ranks 2 " + kLink;
  ASSERT_TRUE(succeeds(other + "--output " + file("none")));
  const Ended e = run(other + plan + " --output " + file("other"));
  ASSERT_EQ(0, e.status) << e.err;
  expect_words(e.out + e.err, {"it is of a model with other gradients", " after 40 batches: "});
  EXPECT_EQ(loss("none"), loss("other"));
}

TEST_F(CliPolicies, SchedulesWithBatchesInFlightPlanToo) {
  for (const std::string schedule : {"pipedream", "dualpipe"}) {
    const std::string lagged =
        kTrain + "--steps 12 --threads 1 --parallel pipeline --stages 2 --ranks 2 --schedule " + schedule;
    ASSERT_TRUE(succeeds(lagged + " --output " + file(schedule)));
    const Ended e = run(lagged + " --allreduce libra --output " + file(schedule + "-libra"));
    ASSERT_EQ(0, e.status) << e.err;
    EXPECT_NE(e.out.find("all-reduces of device 1, planned by "), std::string::npos) << e.out;
    EXPECT_EQ(loss(schedule), loss(schedule + "-libra"));
    EXPECT_TRUE(exists(schedule + "-libra/all-reduce-1.json"));
  }
}

// Two replicas of two models in bf16, under a budget; each schedule with one of the policies.
TEST_F(CliPolicies, EveryScheduleHasTheSameLossesUnderAnotherPolicy) {
  const std::vector<std::string> policies{"libra", "mg-opt", "ddp", "libra-m", "horovod", "se", "mg-wfbp"};
  const std::string train = TANDEM_BIN
      "/train_cifar --arch mlp-residual --synthetic-train 672 --synthetic-test 16 -b 16 --threads 1 "
      "--parallel pipeline --ranks 2 --microbatches 4 --lr 0.004,0.002 --amp-dtype bf16 --memory-budget 1GB ";
  std::size_t next = 0;
  for (const std::string& schedule : schedule_names()) {
    const std::string policy = policies[next++ % policies.size()], output = schedule + "-" + policy,
                      run_of = train + "--schedule " + schedule +
                               (schedule == "interleaved" ? " --stages 4 --chunks 2" : " --stages 2") +
                               " --allreduce ";
    SCOPED_TRACE(output);
    ASSERT_TRUE(succeeds(run_of + "wfbp --output " + file(schedule)));
    const Ended e = run(run_of + policy + " --output " + file(output));
    ASSERT_EQ(0, e.status) << e.err;
    EXPECT_EQ(losses(schedule), losses(output));
    EXPECT_EQ(policy != "ddp" && policy != "se", exists(output + "/all-reduce.json"));
  }
}

TEST_F(CliPolicies, NoFileOfADeviceOutlivesItsRun) {
  const std::string to = " --threads 1 --output " + file("run");
  const std::string stages =
      kTrain + "--steps 12 --parallel pipeline --ranks 2 --schedule pipedream --allreduce libra" + to;
  ASSERT_TRUE(succeeds(stages));
  EXPECT_TRUE(exists("run/all-reduce-1.json"));
  const Ended e = run(kTrain + "--steps 60 --parallel data --allreduce libra --resume auto" + to);
  ASSERT_EQ(0, e.status) << e.err;
  expect_words(e.out, {"it is of 2 devices, not 1", " after 40 batches: "});
  EXPECT_EQ(read("run/all-reduce.json").at("run").at("devices"), 1);
  EXPECT_FALSE(exists("run/all-reduce-1.json"));
  write("run/all-reduce-2.json",
        read_file(file("run/all-reduce.json")));  // of a run whose device 1 had no gradients
  ASSERT_TRUE(succeeds(kTrain + "--steps 1 --force" + to));
  EXPECT_FALSE(exists("run/all-reduce.json"));
  EXPECT_FALSE(exists("run/all-reduce-2.json"));
}

}  // namespace
}  // namespace tandem::testing
