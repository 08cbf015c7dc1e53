// The programs as a user sees them: runs leave the promised files.
#include <numeric>
#include <regex>
#include <set>

#include "cli.h"

namespace tandem::testing {
namespace {

using CliRun = Cli;

using nlohmann::json;

TEST_F(CliRun, TheReportedSmallestBudgetWorks) {
  const std::string train = TANDEM_BIN
                            "/train_cifar --arch resnet20 -b 32 --steps 1 --synthetic-train 64 "
                            "--synthetic-test 600 --plan " +
                            write("plan.json", R"({"swap": ["layer1"]})") + " --memory-budget ";
  const Ended e = run(train + "1MB");
  const std::string words = "the smallest budget that works with it is ";
  const auto at = e.err.find(words);
  ASSERT_NE(std::string::npos, at) << e.err;
  const Ended works = run(train + std::to_string(std::atoll(e.err.c_str() + at + words.size())));
  EXPECT_EQ(0, works.status) << "evaluation must keep to the budget as well: " << works.err;
  EXPECT_TRUE(
      std::regex_search(works.out, std::regex("plan: planned peak .* MB without swaps and recomputes")))
      << works.out;
}

TEST_F(CliRun, WarnsAboutAPlanThatSavesNoMemory) {
  const Ended e = run(kTrain + "--arch resnet20 -b 32 --steps 1 --plan " +
                      write("plan.json", R"({"recompute": ["layer1.0.conv1 conv2d"]})"));
  EXPECT_EQ(0, e.status) << e.err;
  EXPECT_TRUE(std::regex_search(e.out, std::regex("warning: the plan does not lower the peak: planned peak")))
      << e.out;
}

TEST_F(CliRun, ASignalEndsARunWithItsStatusAndOneMessage) {
  for (const auto& [signal, word, status] : kEndings) {
    SCOPED_TRACE(signal);
    const std::string metrics = file(signal + "/metrics.jsonl");
    const Ended e = run(kTrain + "--epochs 100000 --output " + file(signal) + " & until [ -s " + metrics +
                        " ]; do sleep 0.1; done; kill -" + signal + " $!; wait $!");
    EXPECT_EQ(status, e.status) << e.err;
    EXPECT_EQ("train_cifar: " + word + "\n", e.err);
    EXPECT_NE(std::string::npos, e.out.find("the same command with --resume auto continues from batch "))
        << e.out;
    const Ended none = run(kTrain + "--epochs 100000 & sleep 1; kill -" + signal + " $!; wait $!");
    EXPECT_EQ(status, none.status) << none.err;
    EXPECT_NE(std::string::npos, none.out.find("no checkpoint was saved: there is no --output")) << none.out;
  }
  const Ended e =
      run(kTrain + "--epochs 100000 --checkpoint-every 1 --output " + file("saved") + " & until ls " +
          file("saved/checkpoints") + "/step-*0 > /dev/null 2>&1; do sleep 0.1; done; kill -INT $!; wait $!");
  EXPECT_TRUE(
      std::regex_search(e.out, std::regex("same command with --resume auto continues from batch [1-9]")))
      << e.out;
  // The checkpoint that it started from lies in another directory, where auto would not find it.
  const std::string metrics = file("other/metrics.jsonl");
  const Ended other =
      run(kTrain + "--epochs 100000 --resume " + file("saved") + " --checkpoint-every 1000000 --output " +
          file("other") + " & until [ -s " + metrics + " ]; do sleep 0.1; done; kill -INT $!; wait $!");
  EXPECT_NE(std::string::npos, other.out.find("the same command with --resume auto continues from batch "))
      << other.out << other.err;
  EXPECT_TRUE(std::filesystem::exists(file("other/checkpoints")));
}

// Each copy takes some milliseconds, so that signals come while activations are on their way.
TEST_F(CliRun, ASignalDuringASwapLeavesWholeCheckpoints) {
  const std::string train = kTrain +
                            "--arch convnet -b 32 --threads 1 --memory-plan vdnn --copy-link 200MB/s "
                            "--checkpoint-every 1 --epochs 100000 --output ";
  for (const auto& [signal, word, status] : kEndings) {
    SCOPED_TRACE(signal);
    const std::string run_directory = file("swap-" + signal);
    const Ended e =
        run(train + run_directory + " & until ls " + run_directory +
            "/checkpoints/step-3 > /dev/null 2>&1; do sleep 0.01; done; kill -" + signal + " $!; wait $!");
    EXPECT_EQ(status, e.status) << e.err;
    EXPECT_EQ("train_cifar: " + word + "\n", e.err);
    const Ended tested = run(kTrain + "--arch convnet -b 32 --evaluate --resume " + run_directory);
    EXPECT_EQ(0, tested.status) << tested.err;
  }
}

TEST_F(CliRun, TwoRunsDoNotShareAnOutput) {
  const std::string start = kTrain + "--epochs 100000 --output " + file("run");
  const Ended e =
      run(start + " & until [ -s " + file("run/metrics.jsonl") + " ]; do sleep 0.1; done; " + kTrain +
          "--steps 1 --force --output " + file("run") + "; status=$?; kill -INT $!; wait $!; exit $status");
  EXPECT_EQ(1, e.status);
  EXPECT_NE(std::string::npos, e.err.find("another run is writing there")) << e.err;
}

TEST_F(CliRun, FlagsChooseOptimizerClippingAndPrecision) {
  const std::string steps = kTrain + "--arch convnet -b 32 --steps 4 --force --output " + file("run") + " ";
  std::set<double> losses;
  for (const char* flags :
       {"", "--opt adam", "--opt adamw --wd 0.5 --lr 0.05", "--opt adamw --wd 0.5 --no-bias-decay",
        "--nesterov", "--clip-grad 0.1", "--clip-value 0.001", "--amp-dtype bf16"}) {
    const Ended e = run(steps + flags);
    ASSERT_EQ(0, e.status) << flags << ": " << e.err;
    const double loss = read("run/summary.json")["train_loss"];
    EXPECT_TRUE(losses.insert(loss).second) << flags << " has no effect: " << loss;
  }
  const Ended skipped = run(steps + "--lr 1e38 --on-nan skip");
  EXPECT_NE(std::string::npos, skipped.out.find("loss nan")) << skipped.out;
}

TEST_F(CliRun, RollsBackOnlyWithCheckpoints) {
  expect_refused(kTrain + "--on-nan rollback", {"--on-nan rollback needs --checkpoint-every"});
  expect_refused(kTrain + "--max-rollbacks 2", {"--max-rollbacks has no effect", "--on-nan rollback"});
  expect_refused(kTrain + "--on-nan skip --parallel pipeline --schedule dualpipe",
                 {"skipping batches that are not finite", "use one that flushes"});
  expect_refused(kTrain + "--arch mlp --lr 1e38 --steps 9 --on-nan rollback --checkpoint-every 3 --output " +
                     file("run"),
                 {"is not finite, after 3 rollbacks; the first value that is not finite is "});
  int lines = 0;
  for (const json& m : metrics()) EXPECT_EQ(lines++, m.at("step"));
  EXPECT_LE(lines, 1) << "a batch before a rollback is written once";
}

TEST_F(CliRun, PrintsTheMeanRateSinceTheLastLine) {
  const Ended e = run(kTrain + "--steps 10 --print-freq 4 --output " + file("run"));
  ASSERT_EQ(0, e.status) << e.err;
  std::vector<double> step_ms;
  for (const json& m : metrics()) step_ms.push_back(m.at("step_ms"));
  ASSERT_EQ(10u, step_ms.size());
  const std::regex printed(R"(\((\d+) of 10\)  loss [0-9.]+  (\d+) images/s)");
  std::vector<int> steps;
  for (std::sregex_iterator m(e.out.begin(), e.out.end(), printed), end; m != end; ++m) {
    const int before = steps.empty() ? 1 : steps.back();
    steps.push_back(std::stoi((*m)[1]));
    const double ms = std::accumulate(step_ms.begin() + before, step_ms.begin() + steps.back(), 0.0);
    EXPECT_NEAR(64e3 * (steps.back() - before) / ms, std::stod((*m)[2]), 1) << "at step " << steps.back();
  }
  EXPECT_EQ((std::vector<int>{4, 8, 10}), steps) << "the first batch has no rate yet";
  EXPECT_TRUE(std::regex_search(e.out, std::regex("step 0 \\(1 of 10\\)  loss [0-9.]+\n"))) << e.out;
}

TEST_F(CliRun, EndsAtStepsOrEpochsWhicheverComesFirst) {
  const auto steps = [&](const std::string& limits) {
    EXPECT_TRUE(succeeds(kTrain + limits + " --force --output " + file("run")));
    return metrics().size();
  };
  EXPECT_EQ(10u, steps(""));
  EXPECT_EQ(12u, steps("--steps 12"));
  EXPECT_EQ(10u, steps("--steps 12 --epochs 1"));
  EXPECT_EQ(3u, steps("--steps 3 --epochs 2"));
}

TEST_F(CliRun, OutputThatCannotBeWrittenIsAnError) {
  const std::string program = write("p.json", R"({"lanes": [{}], "instructions": [{"name": "A"}]})");
  for (const std::string& command :
       {kTrain + "--steps 2 --print-freq 1", kTrain + "--help", kTandem + "sim " + program,
        kTandem + "verify " + program, kTandem + "--version"}) {
    const std::string name = command.starts_with(kTandem) ? "tandem" : "train_cifar";
    expect_refused(command + " >/dev/full", {name + ": standard output cannot be written"});
    expect_refused(command + " >&-", {name + ": standard output is closed"});
    for (const char* error : {" 2>&-", " >/dev/full 2>/dev/full"})
      EXPECT_EQ(1, run(command + error).status) << command << error;
  }
  const std::string full = file("full");
  std::filesystem::create_symlink("/dev/full", full);
  expect_refused(kTandem + "sim " + program + " --trace " + full,
                 {"'" + full + "' cannot be written", "space"});
  EXPECT_TRUE(std::filesystem::is_symlink(full)) << "only a partly written file is removed";
}

TEST_F(CliRun, PrintsItsVersion) {
  for (const std::string& program : {kTrain, kTandem}) {
    const Ended e = run(program + "--version");
    EXPECT_EQ(0, e.status);
    EXPECT_TRUE(std::regex_match(e.out, std::regex("(train_cifar|tandem) " TANDEM_VERSION "\n"))) << e.out;
  }
}

TEST_F(CliRun, SimulatesAProgramThatTakesNoTime) {
  const Ended e =
      run(kTandem + "sim " + write("p.json", R"({"lanes": [{}], "instructions": [{"name": "A"}]})"));
  EXPECT_EQ(0, e.status) << e.err;
  EXPECT_EQ(std::string::npos, e.out.find("nan")) << e.out;
}

TEST_F(CliRun, ARunWritesArgumentsMetricsAndSummary) {
  const Ended e =
      run(kTrain + "--steps 12 --lr 0.02 --output " + file("run") + " --trace " + file("trace.json"));
  ASSERT_EQ(0, e.status) << e.err;
  EXPECT_EQ(64, read("run/args.json").at("batch_size"));
  int lines = 0;
  for (const json& m : metrics()) {
    EXPECT_EQ(lines, m.at("step"));
    EXPECT_EQ(lines++ / 10, m.at("epoch"));
    for (const char* key : {"loss", "lr", "step_ms", "images_per_second"})
      EXPECT_TRUE(m.at(key).is_number()) << key;
  }
  EXPECT_EQ(12, lines);
  const json s = read("run/summary.json");
  for (const char* key : {"train_loss", "test_accuracy", "images_per_second", "step_ms", "peak_bytes",
                          "planned_peak_bytes", "live_peak_bytes"})
    EXPECT_TRUE(s.at(key).is_number()) << key;
  EXPECT_EQ(s.at("planned_peak_bytes"), s.at("peak_bytes"));
  std::int64_t live = 0, planned = 0;
  const json trace = read("trace.json");
  for (const json& event : trace.at("traceEvents")) {
    if (event.at("ph") != "C") continue;
    live = std::max(live, event.at("args").at("live").get<std::int64_t>());
    planned = std::max(planned, event.at("args").at("planned").get<std::int64_t>());
  }
  EXPECT_EQ(s.at("live_peak_bytes"), live) << "the trace's counters count the same bytes";
  EXPECT_EQ(s.at("planned_peak_bytes"), planned);
  EXPECT_EQ(std::string::npos, e.out.find("missing")) << e.out;
}

TEST_F(CliRun, SeveralModelsGiveArrays) {
  ASSERT_TRUE(succeeds(kTrain + "--steps 3 --lr 0.02,0.01 --seed 1,2 --output " + file("run")));
  EXPECT_EQ(2u, read("run/summary.json").at("test_accuracy").size());
  EXPECT_EQ(2u, read("run/summary.json").at("train_loss").size());
}

TEST_F(CliRun, SimulatePredictsWithoutTraining) {
  const Ended e = run(kTrain + "--simulate --parallel pipeline --stages 4 --microbatches 4 --output " +
                      file("run") + " --trace " + file("t.json"));
  ASSERT_EQ(0, e.status) << e.err;
  EXPECT_NE(std::string::npos, e.out.find("predicted")) << e.err;
  EXPECT_GT(read("run/summary.json").at("step_ms"), 0);
  EXPECT_FALSE(read("t.json").at("traceEvents").empty());
  const Ended again = run(kTrain + "--simulate --parallel pipeline --stages 4 --microbatches 4 --profile " +
                          file("run/profile.json"));
  EXPECT_EQ(0, again.status) << again.err;
}

// The trial run measures more batches than the first epoch has, whose last one is short.
TEST_F(CliRun, SimulatesFullBatchesAlsoIfTheLastOfAnEpochIsShort) {
  const std::string train =
      TANDEM_BIN "/train_cifar --simulate --arch mlp --batch-size 16 --synthetic-train ";
  const Ended e = run(train + "40");
  EXPECT_EQ(0, e.status) << e.err;
  EXPECT_NE(std::string::npos, e.out.find("predicted")) << e.out;
  expect_refused(train + "10", {"10", "16"});
}

// The loss of the only step is finite; the weights after it are not.
TEST_F(CliRun, RefusesToEvaluateWeightsThatAreNotFinite) {
  expect_refused(kTrain + "--steps 1 --lr 1e38 --arch mlp",
                 {"the trained network gives values that are not finite"});
  expect_refused(kTrain + "--steps 1 --lr 0.05,1e38 --on-nan stop --arch mlp",
                 {"the trained network of model 1 gives"});
}

TEST_F(CliRun, SimulationWritesAProgramThatTheToolsRead) {
  ASSERT_EQ(
      0, run(kTrain + "--parallel pipeline --stages 2 --schedule dualpipe --simulate --output " + file("sim"))
             .status);
  EXPECT_TRUE(succeeds(kTandem + "verify " + file("sim/program.json")));
  const Ended e = run(kTandem + "sim " + file("sim/program.json"));
  EXPECT_EQ(0, e.status);
  EXPECT_NE(std::string::npos, e.out.find("device 1 compute 1")) << e.out;
}

}  // namespace
}  // namespace tandem::testing
