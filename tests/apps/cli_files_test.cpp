// The files of a run directory, and what a resumed run does with them.
#include <sys/stat.h>

#include <fstream>
#include <map>
#include <sstream>

#include <tandem/train/event_file.h>

#include "cli.h"
#include "event_reader.h"

namespace tandem::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class RunFiles : public Cli {
 protected:
  std::vector<std::vector<std::string>> csv(const std::string& name) const {
    std::vector<std::vector<std::string>> rows;
    std::ifstream in(file(name));
    for (std::string line; std::getline(in, line);) {
      std::istringstream cells(line);
      rows.emplace_back();
      for (std::string cell; std::getline(cells, cell, ',');) rows.back().push_back(cell);
    }
    return rows;
  }
  /// What TensorBoard shows: the events of all files, in order, without those that a later file replaces.
  std::map<std::string, std::map<std::int64_t, float>> shown(const std::string& run) const {
    std::map<std::string, std::map<std::int64_t, float>> shown;
    for (const std::string& f : event_files(file(run))) {
      const ReadEvents events = read_events(f);
      for (const std::int64_t start : events.starts)
        for (auto& [tag, values] : shown) values.erase(values.lower_bound(start), values.end());
      for (const ReadScalar& s : events.scalars)
        EXPECT_TRUE(shown[s.tag].emplace(s.step, s.value).second) << s.tag << " twice at " << s.step;
    }
    return shown;
  }
};

TEST_F(RunFiles, ARefusedRunRemovesOnlyWhatItMade) {
  const std::string refused = kTrain + "--plan " + write("plan.json", "{") + " --output ";
  expect_refused(refused + file("deep/er/run/"), {"plan.json"});
  EXPECT_FALSE(fs::exists(file("deep")));
  ASSERT_TRUE(fs::create_directories(file("mine/empty")));
  expect_refused(refused + file("mine/run"), {"plan.json"});
  expect_refused(refused + file("mine/empty"), {"plan.json"});
  EXPECT_FALSE(fs::exists(file("mine/run")));
  EXPECT_TRUE(fs::exists(file("mine/empty")));
}

TEST_F(RunFiles, ASummaryHasOneRowPerEpochAndOneAtTheEnd) {
  ASSERT_TRUE(succeeds(kTrain + "--steps 25 --arch mlp --sched linear --output " + file("run")));
  const auto rows = csv("run/summary.csv");
  ASSERT_EQ(4u, rows.size());
  EXPECT_EQ((std::vector<std::string>{"of", "epoch", "batch", "train_loss", "test_accuracy", "lr", "step_ms",
                                      "images_per_second"}),
            rows[0]);
  const std::vector<json> steps = metrics();
  for (std::size_t r = 1; r < 4; ++r) {
    ASSERT_EQ(8u, rows[r].size());
    EXPECT_EQ(r < 3 ? "epoch" : "end", rows[r][0]);
    EXPECT_EQ(std::to_string(r - 1), rows[r][1]);
    const std::size_t batches = r < 3 ? 10 * r : 25;
    EXPECT_EQ(std::to_string(batches), rows[r][2]);
    double sum = 0;
    for (std::size_t b = 10 * (r - 1); b < batches; ++b) sum += steps[b].at("loss").get<double>();
    EXPECT_NEAR(sum / static_cast<double>(batches - 10 * (r - 1)), std::stod(rows[r][3]), 1e-12);
    EXPECT_EQ(steps[batches - 1].at("lr").get<double>(), std::stod(rows[r][5]));
    EXPECT_NEAR(64e3 / std::stod(rows[r][6]), std::stod(rows[r][7]), 1e-6);
  }
  const json summary = read("run/summary.json");
  EXPECT_EQ(summary.at("test_accuracy").get<double>(), std::stod(rows[3][4]));
  EXPECT_EQ(summary.at("train_loss").get<double>(), std::stod(rows[3][3]));
  EXPECT_EQ(summary.at("step_ms").get<double>(), std::stod(rows[3][6]));
}

TEST_F(RunFiles, EveryModelHasItsOwnColumnsAndTags) {
  ASSERT_TRUE(succeeds(kTrain + "--arch mlp --lr 0.02,0.01 --seed 1,2 --output " + file("run")));
  const auto rows = csv("run/summary.csv");
  ASSERT_EQ(3u, rows.size());
  EXPECT_EQ("train_loss_1", rows[0][4]);
  EXPECT_EQ("0.01", rows[1][8]);
  EXPECT_TRUE(shown("run").contains("train/loss/model_1"));
}

// Epochs are those of the run, whatever the warm-up. An epoch has ten batches.
TEST_F(RunFiles, TheRateFollowsItsScheduleAlsoAfterAWarmUp) {
  for (const std::string sched : {"step", "multistep"}) {
    ASSERT_TRUE(
        succeeds(kTrain +
                 "--arch mlp --epochs 4 --lr 0.01 --warmup-epochs 1 --decay-epochs 2 --decay-rate 0.5 "
                 "--force --tensorboard 1 --sched " +
                 sched + " --output " + file("run")));
    auto rates = shown("run")["train/lr"];
    ASSERT_EQ(40u, rates.size());
    EXPECT_LT(rates.begin()->second, 0.01F) << sched;
    for (const auto& [step, rate] : rates) {
      if (step < 10) continue;
      EXPECT_FLOAT_EQ(step < 20 ? 0.01F : 0.005F, rate) << sched << " " << step;
    }
  }
}

TEST_F(RunFiles, AResumedRunContinuesSummaryAndEvents) {
  const std::string command = kTrain + "--arch mlp --tensorboard 1 --checkpoint-every 15 --output ";
  ASSERT_TRUE(succeeds(command + file("whole") + " --epochs 3"));
  ASSERT_TRUE(succeeds(command + file("run") + " --epochs 2"));
  fs::remove_all(file("run/checkpoints/step-20"));  // so that the run resumes from batch 15, before its end
  ASSERT_TRUE(succeeds(command + file("run") + " --epochs 3 --resume auto"));
  auto whole = csv("whole/summary.csv"), rows = csv("run/summary.csv");
  ASSERT_EQ(5u, rows.size());
  for (auto* table : {&whole, &rows})
    for (auto& row : *table) row.resize(6);  // everything but times
  EXPECT_EQ(whole, rows);
  EXPECT_EQ(2u, event_files(file("run")).size());
  auto all = shown("whole"), parts = shown("run");
  for (const char* tag : {"train/loss", "train/lr", "epoch/train_loss", "epoch/test_accuracy"}) {
    EXPECT_EQ(all[tag], parts[tag]) << tag;
    EXPECT_EQ(std::string(tag).starts_with("train") ? 30u : 3u, parts[tag].size()) << tag;
  }
  for (const json& j : metrics()) {
    EXPECT_EQ(static_cast<float>(j.at("loss").get<double>()), parts["train/loss"].at(j.at("step")));
  }
  ASSERT_TRUE(succeeds(kTrain + "--arch mlp --steps 2 --force --output " + file("run")));
  EXPECT_EQ(1u, event_files(file("run")).size()) << "another run replaces the events";
  EXPECT_EQ(1u, shown("run")["train/loss"].size()) << "every tenth batch";
  ASSERT_TRUE(succeeds(kTrain + "--steps 2 --force --tensorboard 0 --output " + file("run")));
  EXPECT_EQ(0u, event_files(file("run")).size());
  EXPECT_TRUE(succeeds(kTrain + "--arch mlp --steps 2 --tensorboard 0"));
  expect_refused(kTrain + "--tensorboard 1", {"--tensorboard has no effect", "without --output"});
}

TEST_F(RunFiles, ATraceWithoutAFileNameIsInTheRunDirectory) {
  ASSERT_TRUE(succeeds(kTrain + "--steps 2 --arch mlp --trace --output " + file("run")));
  EXPECT_FALSE(read("run/trace.json").at("traceEvents").empty());
  ASSERT_TRUE(succeeds(kTrain + "--steps 2 --arch mlp --force --output " + file("run")));
  EXPECT_FALSE(fs::exists(file("run/trace.json"))) << "another run's trace is removed";
  expect_refused(kTrain + "--steps 2 --trace", {"--trace without a file", "--output"});
}

TEST_F(RunFiles, AConfigurationSetsFlagsAndFlagsOverrideIt) {
  const std::string config = write("mine.toml", R"(# a list, as TOML writes it
arch = "mlp"
lr = [0.1, 0.05]
betas = [0.8, 0.99]
opt = "adam"
seed = "3,4"
drop-last = true
batch-size = 60
synthetic-train = 640
synthetic-test = 100
)");
  const std::string program = TANDEM_BIN "/train_cifar ";
  ASSERT_TRUE(succeeds(program + "--config " + config + " --lr 0.2,0.1 --steps 3 --output " + file("a")));
  json a = read("a/args.json");
  EXPECT_EQ("mlp", a.at("arch"));
  EXPECT_EQ((std::vector<double>{0.2, 0.1}), a.at("lr")) << "the flag wins";
  EXPECT_EQ((std::vector<double>{0.8, 0.99}), a.at("betas"));
  EXPECT_EQ((std::vector<int>{3, 4}), a.at("seed"));
  EXPECT_EQ(true, a.at("drop_last"));
  EXPECT_EQ(60, a.at("batch_size"));
  // The configuration that a run writes gives the same run again.
  ASSERT_TRUE(succeeds(program + "--config " + file("a/config.toml") + " --output " + file("b")));
  json b = read("b/args.json");
  for (json* j : {&a, &b})
    for (const char* differs : {"command_line", "checksum"}) j->erase(differs);
  EXPECT_EQ(a, b);
  EXPECT_EQ(read("a/summary.json").at("train_loss"), read("b/summary.json").at("train_loss"));
  // Also with unusual characters in the directory, and with flags that have no value.
  const std::string odd = "'" + file("run #1, [2]") + "'";
  ASSERT_TRUE(succeeds(kTrain + "--arch mlp --steps 2 --trace --output " + odd));
  fs::rename(file("run #1, [2]/config.toml"), file("odd.toml"));
  fs::remove_all(file("run #1, [2]"));
  const Ended again = run(program + "--config " + file("odd.toml"));
  ASSERT_EQ(0, again.status) << again.err;
  EXPECT_EQ(2u, read("run #1, [2]/args.json").at("steps").get<unsigned>());
  EXPECT_TRUE(fs::exists(file("run #1, [2]/trace.json")));
}

TEST_F(RunFiles, AConfigurationIsChecked) {
  const auto refused = [&](const std::string& text, std::vector<std::string> words) {
    words.emplace_back("mine.toml'");
    expect_refused(kTrain + "--config " + write("mine.toml", text), words);
  };
  refused("lr = []\n", {"line 1: 'lr' is an empty list"});
  refused("nesterov = \"maybe\"\n", {"line 1: 'nesterov' is true or false, not 'maybe'"});
  refused("nesterov = 1\n", {"line 1: 'nesterov' is true or false, not '1'"});
  refused("bogus = 3\n", {"line 1: unknown key 'bogus'", "train_cifar --help"});
  refused("\nepoch = 3\n", {"line 2: unknown key 'epoch', perhaps --epochs"});
  refused("lr = fast\n", {"line 1, column", "a \"string\" or a [list]"});
  refused("epochs = 1\nepochs = 1\n", {"line 2, column", "'epochs'"});
  refused("lr = 'fast'\n", {"--lr: 'fast' is no finite decimal number"});
  refused("steps = 1e3\n", {"--steps: '1000.0' is no whole number"});
  refused("[optimizer]\nlr = 0.1\n", {"line 1: 'optimizer': sections, dates,"});
  refused("force = true\n", {"line 1: 'force' is only for the command line"});
  refused("config = \"other.toml\"\n", {"'config' is only for the command line"});
  refused(std::string(2 << 20, '#'), {"more than 1048576 bytes"});
  expect_refused(kTrain + "--config /dev/zero", {"--config '/dev/zero'", "more than 1048576 bytes"});
  expect_refused(kTrain + "--config " + write("mine.toml", "opt = \"adam\"\nbetas = [0.9]\n"),
                 {"--betas: there must be two", "not 0.9"});
  expect_refused(kTrain + "--config " + file("none.toml"), {"--config", "none.toml", "No such file"});
  expect_refused(kTrain + "--config " + write("mine.toml", "momentum = 0.5\nopt = \"adam\"\n"),
                 {"--momentum has no effect with --opt adam"});
  expect_refused(kTrain + "--config " + directory_.path(), {"--config", "directory"});
}

// /bin/sh has no <(command), which is such a pipe, too.
TEST_F(RunFiles, AConfigurationComesThroughAPipeIfSomethingWritesIt) {
  const std::string fifo = file("fifo"), config = write("mine.toml", "steps = 3\narch = \"mlp\"\n"),
                    train = "timeout 20 " TANDEM_BIN "/train_cifar --batch-size 8 --synthetic-train 64 ";
  ASSERT_EQ(0, mkfifo(fifo.c_str(), 0600));
  const Ended written = run("{ sleep 0.2; cat " + config + "; } >" + fifo + " & sleep 0.1; " + train +
                            "--config " + fifo + " --output " + file("a"));
  EXPECT_EQ(0, written.status) << written.err;
  EXPECT_EQ(3, read("a/args.json").at("steps"));
  const Ended unwritten = run(train + "--config " + fifo);
  EXPECT_EQ(1, unwritten.status) << "124: it waited";
  expect_words(unwritten.err, {"--config '" + fifo, "empty pipe", "give a file"});
  const Ended closed = run("exec 3<>" + fifo + "; exec 4<" + fifo + "; echo 'steps = 2' >&3; exec 3>&-; " +
                           train + "--config " + fifo + " --output " + file("b"));
  EXPECT_EQ(0, closed.status) << closed.err;
  EXPECT_EQ(2, read("b/args.json").at("steps")) << "what its last writer left";
}

TEST_F(RunFiles, ATraceGoesThroughAPipeAndSaysWhenNothingReadsIt) {
  const std::string fifo = file("fifo"), said = file("said"),
                    train = "timeout 20 " TANDEM_BIN
                            "/train_cifar --arch mlp --steps 2 --batch-size 8 "
                            "--synthetic-train 64 --trace " +
                            fifo;
  ASSERT_EQ(0, mkfifo(fifo.c_str(), 0600));
  const Ended early = run("cat " + fifo + " >" + file("early.json") + " & " + train + " && wait");
  EXPECT_EQ(0, early.status) << early.err;
  EXPECT_EQ("tandem trace", read("early.json").at("format"));
  EXPECT_EQ(std::string::npos, early.out.find("waits for")) << early.out;
  const std::string reader = "until grep -q \"waits for another program to read\" " + said +
                             "; do sleep 0.05; done; cat " + fifo + " >" + file("late.json");
  const Ended late =
      run(": >" + said + "; timeout 25 sh -c '" + reader + "' & " + train + " >" + said + " && wait");
  EXPECT_EQ(0, late.status) << "124: it waited in silence; " << late.err;
  EXPECT_EQ("tandem trace", read("late.json").at("format"));
}

}  // namespace
}  // namespace tandem::testing
