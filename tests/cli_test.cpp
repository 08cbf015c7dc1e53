// The programs as a user meets them: bad input ends with one clear line and a non-zero status, runs leave
// behind what they promise.
#include <sys/wait.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

struct Ended {
  int status = -1;  // exit status, or 128 + signal
  std::string output;
};

Ended run(const std::string& command) {
  Ended e;
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  char buffer[4096];
  while (const std::size_t n = fread(buffer, 1, sizeof buffer, pipe)) e.output.append(buffer, n);
  const int status = pclose(pipe);
  e.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return e;
}

const std::string kTrain = TANDEM_BIN "/train_cifar --synthetic-train 640 --synthetic-test 100 -b 64 ";
const std::string kTandem = TANDEM_BIN "/tandem ";

class Cli : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/tandem_cli_XXXXXX";
    directory_ = mkdtemp(name);
  }
  void TearDown() override { fs::remove_all(directory_); }
  std::string file(const std::string& name) const { return (directory_ / name).string(); }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(file(name)) << text;
    return file(name);
  }
  json read(const std::string& name) const { return json::parse(std::ifstream(file(name))); }
  fs::path directory_;
};

void expect_refused(const std::string& command, const std::vector<std::string>& words) {
  SCOPED_TRACE(command);
  const Ended e = run(command);
  EXPECT_EQ(1, e.status) << e.output;
  for (const auto& w : words)
    EXPECT_NE(std::string::npos, e.output.find(w)) << "no '" << w << "' in: " << e.output;
}

TEST_F(Cli, RefusesBadFlags) {
  expect_refused(kTrain + "--bogus 3", {"--bogus", "--help"});
  expect_refused(kTrain + "--arch foo", {"foo", "mlp", "mlp-residual", "convnet"});
  expect_refused(kTrain + "--schedule zz", {"zz", "gpipe", "1f1b", "pipedream", "dualpipe"});
  expect_refused(kTrain + "--transport smoke", {"smoke", "threads", "mpi"});
  expect_refused(kTrain + "--parallel both", {"both", "none", "data", "pipeline"});
  expect_refused(kTrain + "--batch-size 0", {"--batch-size 0", "at least 1"});
  expect_refused(kTrain + "--batch-size 6400", {"6400", "640 training images"});
  expect_refused(kTrain + "-b 30 --parallel data --ranks 4", {"30", "4 ranks", "28", "32"});
  expect_refused(kTrain + "-b 64 --microbatches 3", {"64", "3 micro-batches", "63", "66"});
  expect_refused(kTrain + "--lr 0.1,0.2 --models 3", {"--lr", "2 values for 3 models"});
  expect_refused(kTrain + "--memory-budget lots", {"lots", "MiB"});
  expect_refused(kTrain + "--link fast", {"fast", "GB/s", "us"});
  expect_refused(kTrain + "--stages 2 --parallel data", {"--stages 2", "pipeline"});
}

TEST_F(Cli, RefusesImpossiblePlans) {
  expect_refused(kTrain + "--memory-budget 1MB", {"1000000", "smallest budget that works"});
  expect_refused(kTrain + "--parallel pipeline --stages 40", {"impossible cut", "40 stages", "head"});
  const std::string pipeline = kTrain + "--parallel pipeline --stages 2 --plan ";
  expect_refused(pipeline + write("unknown.json", R"({"cuts": ["block9"]})"),
                 {"impossible cut", "block9", "block0, block1"});
  expect_refused(pipeline + write("first.json", R"({"cuts": ["stem"]})"),
                 {"impossible cut", "stem", "stage 0"});
  expect_refused(pipeline + write("many.json", R"({"cuts": ["block1", "block2"]})"),
                 {"2 stages need 1 cuts", "2"});
  expect_refused(kTrain + "--parallel pipeline --stages 3 --plan " +
                     write("order.json", R"({"cuts": ["block2", "block1"]})"),
                 {"impossible cut", "block1"});
  expect_refused(kTrain + "--plan " + write("key.json", R"({"cutz": []})"), {"cutz", "cuts"});
  expect_refused(kTrain + "--plan " + write("text.json", "{"), {"text.json", "parse error"});
  expect_refused(kTrain + "--plan " + file("absent.json"), {"absent.json", "cannot be read"});
  expect_refused(kTrain + "--plan " + write("swap.json", R"({"swap": ["attic"]})"),
                 {"attic", "names no activation", "block0 relu"});
  expect_refused(kTrain + "--parallel data --ranks 2 --plan " +
                     write("group.json", R"({"fusion_groups": [["nobody.weight"]]})"),
                 {"nobody.weight"});
}

TEST_F(Cli, TheSmallestBudgetThatWorksWorks) {
  const Ended e = run(kTrain + "--steps 2 --memory-budget 1MB");
  const std::string words = "the smallest budget that works with it is ";
  const auto at = e.output.find(words);
  ASSERT_NE(std::string::npos, at) << e.output;
  const std::string budget = std::to_string(std::atoll(e.output.c_str() + at + words.size()));
  const Ended works = run(kTrain + "--steps 2 --memory-budget " + budget);
  EXPECT_EQ(0, works.status) << works.output;
}

TEST_F(Cli, RefusesBadData) {
  expect_refused(kTrain + "--data " + file("nowhere"), {"nowhere"});
  fs::create_directory(file("empty"));
  expect_refused(kTrain + "--data " + file("empty"), {"empty"});
  const auto data_with = [&](const std::string& name, const std::string& bytes) {
    fs::create_directory(file(name));
    for (const char* f : {"data_batch_1.bin", "test_batch.bin"}) std::ofstream(file(name) + "/" + f) << bytes;
    return kTrain + "--data " + file(name);
  };
  expect_refused(data_with("short", std::string(3072, '\0')), {"data_batch_1.bin", "3072"});
  expect_refused(data_with("long", std::string(3074, '\0')), {"data_batch_1.bin", "3074"});
  expect_refused(data_with("label", std::string(1, '\x0b') + std::string(3072, '\0')),
                 {"data_batch_1.bin", "label", "11"});
}

TEST_F(Cli, NamesStepAndModuleOfANonFiniteLoss) {
  expect_refused(kTrain + "--lr 1e12 --steps 20", {"nan at step ", "module 'block"});
  expect_refused(kTrain + "--lr 1e12 --steps 20 --parallel data --ranks 2",
                 {"nan at step ", "module 'block"});
  expect_refused(kTrain + "--lr 0.01,1e12 --steps 20", {"of model 1", "nan at step "});
}

TEST_F(Cli, RefusesBadPrograms) {
  const auto program = [&](const std::string& steps) {
    return kTandem + "verify " +
           write("p.json",
                 R"({"devices": 2, "lanes": [{"device": 0}, {"device": 0, "kind": "send", "index": 1},
      {"device": 1, "kind": "receive", "index": 0}, {"device": 1}], "steps": [)" +
                     steps + "]}");
  };
  expect_refused(
      program(
          R"({"name": "A", "reads": ["b"], "writes": ["a"]}, {"name": "B", "reads": ["a"], "writes": ["b"]})"),
      {"cycle", "'A'", "'B'"});
  expect_refused(program(R"({"name": "A", "reads": ["x"]})"), {"missing value", "'x'"});
  expect_refused(
      program(R"({"name": "s1", "lane": 1, "channel": "p"}, {"name": "s2", "lane": 1, "channel": "q"},
                            {"name": "r2", "lane": 2, "channel": "q"}, {"name": "r1", "lane": 2, "channel": "p"})"),
      {"deadlock", "s1", "r2"});
  expect_refused(program(R"({"name": "A", "lane": 9})"), {"lane 9"});
  expect_refused(program(R"({"name": "A", "lag": 2000000000})"), {"lag 2000000000"});
  const std::string lanes =
      R"({"devices": 1, "lanes": [{}], "steps": [{"name": "A", "reads": ["w@1"]}], "states": {"w": )";
  for (const char* state : {R"({"slots": 0})", R"({"slots": -3})", R"({"bytes": -576})", R"({"device": 5})"})
    expect_refused(kTandem + "sim " + write("s.json", lanes + state + "}}"), {"'w'", "1 devices"});
  EXPECT_EQ(
      0, run(kTandem + "sim " + write("zero.json", R"({"lanes": [{}], "steps": [{"name": "A"}]})")).status);
  expect_refused(program(R"({"name": "A", "colour": 1})"), {"colour"});
  expect_refused(program(R"({"name": "A"}, {"name": "A"})"), {"two steps", "'A'"});
  expect_refused(kTandem + "verify " + write("q.json", "["), {"parse error"});
  expect_refused(kTandem + "sim " + file("absent.json"), {"absent.json"});
}

TEST_F(Cli, InterruptEndsWith130) {
  int output = open(file("log").c_str(), O_CREAT | O_WRONLY, 0600);
  const pid_t child = fork();
  if (child == 0) {
    dup2(output, 1);
    dup2(output, 2);
    execl(TANDEM_BIN "/train_cifar", "train_cifar", "--synthetic-train", "640", "--synthetic-test", "10",
          "--epochs", "100000", nullptr);
    _exit(99);
  }
  close(output);
  std::this_thread::sleep_for(std::chrono::seconds(2));
  kill(child, SIGINT);
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(130, WEXITSTATUS(status));
}

TEST_F(Cli, ARunLeavesArgumentsMetricsAndSummary) {
  const Ended e =
      run(kTrain + "--steps 12 --lr 0.02 --output " + file("run") + " --trace " + file("trace.json"));
  ASSERT_EQ(0, e.status) << e.output;
  EXPECT_EQ(64, read("run/args.json").at("batch_size"));
  std::ifstream metrics(file("run/metrics.jsonl"));
  int lines = 0;
  for (std::string line; std::getline(metrics, line); ++lines) {
    const json m = json::parse(line);
    EXPECT_EQ(lines, m.at("step"));
    EXPECT_EQ(lines / 10, m.at("epoch"));
    for (const char* key : {"loss", "lr", "step_ms", "images_per_second"})
      EXPECT_TRUE(m.at(key).is_number()) << key;
  }
  EXPECT_EQ(12, lines);
  const json s = read("run/summary.json");
  for (const char* key : {"train_loss", "test_accuracy", "images_per_second", "step_ms", "peak_bytes",
                          "planned_peak_bytes", "live_peak_bytes"})
    EXPECT_TRUE(s.at(key).is_number()) << key;
  EXPECT_EQ(s.at("planned_peak_bytes"), s.at("peak_bytes"));
  EXPECT_FALSE(read("trace.json").at("traceEvents").empty());
}

TEST_F(Cli, SeveralModelsGiveArrays) {
  ASSERT_EQ(0, run(kTrain + "--steps 3 --lr 0.02,0.01 --seed 1,2 --output " + file("run")).status);
  EXPECT_EQ(2u, read("run/summary.json").at("test_accuracy").size());
  EXPECT_EQ(2u, read("run/summary.json").at("train_loss").size());
}

TEST_F(Cli, SimulatePredictsWithoutTraining) {
  const Ended e = run(kTrain + "--simulate --parallel pipeline --stages 4 --microbatches 4 --output " +
                      file("run") + " --trace " + file("t.json"));
  ASSERT_EQ(0, e.status) << e.output;
  EXPECT_NE(std::string::npos, e.output.find("predicted")) << e.output;
  EXPECT_GT(read("run/summary.json").at("step_ms"), 0);
  EXPECT_FALSE(read("t.json").at("traceEvents").empty());
  const Ended again = run(kTrain + "--simulate --parallel pipeline --stages 4 --microbatches 4 --profile " +
                          file("run/profile.json"));
  EXPECT_EQ(0, again.status) << again.output;
}

}  // namespace
