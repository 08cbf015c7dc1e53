// The messages of the programs, their readers, and their places.
#include <regex>
#include <set>
#include <sstream>

#include "cli.h"

namespace tandem::testing {
namespace {

using CliMessages = Cli;

TEST_F(CliMessages, EachLogLevelPrintsAllOfTheNextAndMore) {
  const struct {
    const char* level;
    bool debug, info, note;
  } levels[] = {{"debug", true, true, true},
                {"info", false, true, true},
                {"warning", false, false, true},
                {"error", false, false, false}};
  for (const auto& [level, debug, info, note] : levels) {
    const Ended e = run(kTrain + "--arch mlp --steps 12 --threads 64 --log-level " + level);
    EXPECT_EQ(0, e.status) << e.err;
    EXPECT_EQ(debug, e.out.find("planned and proved") != std::string::npos) << level << ": " << e.out;
    EXPECT_EQ(info, e.out.find("step 11 (12 of 12)  loss ") != std::string::npos) << level << ": " << e.out;
    EXPECT_EQ(info, e.out.find("epoch 0  train loss ") != std::string::npos) << level << ": " << e.out;
    EXPECT_EQ(note, std::regex_search(e.out, std::regex("warning: 64 computing threads share \\d+ core")))
        << level << ": " << e.out;
    EXPECT_TRUE(std::regex_search(e.out, std::regex("test accuracy .* ms per step")))
        << "the result is missing: " << e.out;
    EXPECT_EQ("", e.err);
  }
  expect_refused(kTrain + "--arch mlp --steps 1 --lr 1e38 --log-level error", {"values that are not finite"});
  expect_refused(kTrain + "--log-level loud", {"--log-level 'loud'", "debug, info, warning, error"});
}

TEST_F(CliMessages, StacksThatAreTooSmallAreRefused) {
  const std::string start = kTrain + "--arch mlp --steps 1";
  expect_refused("ulimit -s 64; " + start, {"ulimit -s", "64 KiB", "256 KiB or more"});
  expect_refused("OMP_STACKSIZE=16k " + start, {"OMP_STACKSIZE", "16 KiB", "256 KiB or more"});
  expect_refused("OMP_STACKSIZE=' 100 k ' " + start, {"OMP_STACKSIZE", "100 KiB"});
  EXPECT_TRUE(succeeds("ulimit -s 256; OMP_STACKSIZE=256K " + start));
  EXPECT_TRUE(succeeds("OMP_STACKSIZE=' 10 M' " + start));
}

// `script` runs a command in a terminal, if the machine has pseudo-terminals.
bool has_terminals() { return run("script -qec true /dev/null").status == 0; }

TEST_F(CliMessages, ATerminalGetsAProgressBarAndOtherOutputsGetLines) {
  if (!has_terminals()) GTEST_SKIP() << "`script` cannot open a pseudo-terminal here";
  const std::string job = kTrain + "--arch mlp --epochs 4 --print-freq 7 ";
  const Ended bar = run("script -qec '" + job + "' /dev/null");
  EXPECT_EQ(0, bar.status) << bar.err;
  EXPECT_TRUE(std::regex_search(
      bar.out,
      std::regex(
          "\r\\[=+ *\\] step \\d+ \\(\\d+ of 40\\)  loss [0-9.]+  \\d+ images/s  \\d+:\\d\\d left\x1b\\[K")))
      << bar.out;
  EXPECT_TRUE(std::regex_search(bar.out, std::regex("(\r\x1b\\[K|\n)epoch 1  train loss ")))
      << "the message shares a line with the bar: " << bar.out;
  EXPECT_TRUE(std::regex_search(bar.out, std::regex("40 of 40[^\r\n]*\r?\ntest accuracy "))) << bar.out;
  const Ended lines = run(job);
  EXPECT_EQ(std::string::npos, lines.out.find_first_of("\r\x1b")) << lines.out;
  for (const int done : {1, 7, 14, 21, 28, 35, 40})
    EXPECT_TRUE(std::regex_search(lines.out, std::regex("(^|\n)step " + std::to_string(done - 1) + " \\(" +
                                                        std::to_string(done) + " of 40\\)  loss ")))
        << done << ": " << lines.out;
}

TEST_F(CliMessages, ATerminalThatIsDumbOrHasNoNameGetsLines) {
  if (!has_terminals()) GTEST_SKIP() << "`script` cannot open a pseudo-terminal here";
  for (const std::string with : {"TERM=dumb ", "env -u TERM "}) {
    const Ended e = run("script -qec '" + with + kTrain + "--arch mlp --epochs 2' /dev/null");
    EXPECT_EQ(std::string::npos, e.out.find('\x1b')) << e.out;
    EXPECT_NE(std::string::npos, e.out.find("step 19 (20 of 20)  loss ")) << e.out;
  }
}

TEST_F(CliMessages, TheLastLinesSayWhereEverythingIs) {
  const Ended e = run(kTrain + "--arch mlp --epochs 2 --trace --trace-steps 3 --output " + file("run"));
  EXPECT_TRUE(e.out.ends_with("the run is in " + file("run") + ", its weights in " + file("run") +
                              "/checkpoints/step-20/model.safetensors\nits trace is in " + file("run") +
                              "/trace.json: open https://ui.perfetto.dev and drop it on the page\n"))
      << e.out;
  EXPECT_TRUE(std::filesystem::exists(file("run/checkpoints/step-20/model.safetensors")));
  std::set<int> batches;
  const nlohmann::json trace = read("run/trace.json");
  for (const auto& event : trace.at("traceEvents"))
    if (event.at("ph") == "X") batches.insert(event.at("args").at("batch").get<int>());
  EXPECT_EQ((std::set<int>{0, 1, 2}), batches) << "steps count as in metrics.jsonl";
  EXPECT_EQ(0, metrics().front().at("step"));
  expect_refused(kTrain + "--steps 1 --trace-steps 3", {"--trace-steps", "without --trace"});
}

// Where all-reduces are planned, the steps of a trace are those after that.
TEST_F(CliMessages, ATraceOfAFewStepsIsNotEmptyWhereAllReducesArePlanned) {
  ASSERT_TRUE(
      succeeds(kTrain +
               "--arch mlp --epochs 6 --parallel data --ranks 2 --allreduce libra --trace --trace-steps 3 "
               "--output " +
               file("run")));
  std::set<int> batches;
  const nlohmann::json trace = read("run/trace.json");
  for (const auto& event : trace.at("traceEvents"))
    if (event.at("ph") == "X") batches.insert(event.at("args").at("batch").get<int>());
  ASSERT_EQ(3u, batches.size());
  EXPECT_GT(*batches.begin(), 3);
}

TEST_F(CliMessages, HelpFitsAHundredColumnsAndNamesTheOtherProgram) {
  for (const std::string command :
       {"", "make-data", "sim", "sim pipeline", "sim all-reduce", "plan", "plan pipeline", "plan memory",
        "plan all-reduce", "reproduce", "reproduce libra", "reproduce dualpipe", "reproduce mu-two",
        "summary", "layers", "forward", "convert-weights", "verify"}) {
    const std::string help = run(kTandem + command + " --help").out;
    std::istringstream lines(help);
    for (std::string line; std::getline(lines, line);)
      EXPECT_LE(line.size(), 100u) << command << ": " << line;
    for (const char* cli11 : {" in [", "=[", "TEXT:{"})
      EXPECT_EQ(std::string::npos, help.find(cli11)) << command << ": " << help;
  }
  std::istringstream lines(run(kTrain + "--help").out);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
  const std::string help = run(kTandem + "--help").out;
  for (const char* word : {"train_cifar --help", "tandem make-data cifar10", "--arch resnet20", "docs/"})
    EXPECT_NE(std::string::npos, help.find(word)) << help;
}

TEST_F(CliMessages, TheExamplesOfHelpWork) {
  std::filesystem::create_symlink(TANDEM_SOURCE "/docs", file("docs"));
  for (const std::string command : {"make-data", "sim", "sim pipeline", "sim all-reduce", "plan pipeline",
                                    "plan memory", "plan all-reduce", "reproduce libra", "reproduce dualpipe",
                                    "reproduce mu-two", "summary", "layers", "verify"}) {
    std::istringstream lines(run(kTandem + command + " --help").out);
    std::string line;
    while (std::getline(lines, line) && !line.starts_with("  tandem " + command)) {
    }
    ASSERT_FALSE(line.empty()) << command << " has no example";
    const Ended e = run("cd " + file("") + " && " + kTandem + line.substr(std::string("  tandem ").size()));
    EXPECT_EQ(0, e.status) << line << ": " << e.err;
  }
}

TEST_F(CliMessages, TextThatIsNotUtf8IsNamed) {
  expect_refused(kTrain + "--output \"$(printf '" + file("a") + "\\377b')\" --steps 1",
                 {"--output", "a\\xffb' is not UTF-8"});
}

TEST_F(CliMessages, TorchrunsVariablesAreRefused) {
  const std::string variables = "RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 ";
  expect_refused(variables + kTrain + "--steps 1", {"RANK=1", "WORLD_SIZE=2", "torchrun", "mpirun"});
  expect_refused("RANK=1 WORLD_SIZE=2 " + kTrain + "--steps 1", {"RANK=1", "WORLD_SIZE=2", "torchrun"});
  EXPECT_TRUE(succeeds("RANK=0 WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 " + kTrain + "--arch mlp --steps 1"));
}

TEST_F(CliMessages, TheProgressBarStaysOnOneLine) {
  if (!has_terminals()) GTEST_SKIP() << "`script` cannot open a pseudo-terminal here";
  for (const int columns : {1, 20, 70, 200}) {
    const Ended e = run("script -qec 'stty cols " + std::to_string(columns) + "; " + kTrain +
                        "--arch mlp --steps 10' /dev/null");
    EXPECT_EQ(0, e.status) << e.err;
    const std::regex drawn("\r([^\r\n\x1b]*)\x1b\\[K");
    int lines = 0;
    for (std::sregex_iterator it(e.out.begin(), e.out.end(), drawn); it != std::sregex_iterator(); ++it) {
      const std::string line = (*it)[1];
      if (line.empty() && columns > 1) continue;  // clears the bar for a message
      EXPECT_LT(std::ssize(line), columns) << line;
      EXPECT_EQ(columns >= 70, line.starts_with("[")) << columns << ": " << line;
      ++lines;
    }
    EXPECT_GT(lines, 0) << e.out;
  }
}

}  // namespace
}  // namespace tandem::testing
