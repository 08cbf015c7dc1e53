// The messages of the programs, their readers, and their places.
#include <regex>

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
    EXPECT_EQ(info, e.out.find("12/12  loss ") != std::string::npos) << level << ": " << e.out;
    EXPECT_EQ(info, e.out.find("epoch 1  train loss ") != std::string::npos) << level << ": " << e.out;
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
  EXPECT_EQ(0, run("ulimit -s 256; OMP_STACKSIZE=256K " + start).status);
  EXPECT_EQ(0, run("OMP_STACKSIZE=' 10 M' " + start).status);
}

TEST_F(CliMessages, ATerminalGetsAProgressBarAndOtherOutputsGetLines) {
  const std::string job = kTrain + "--arch mlp --epochs 4 --print-freq 7 ";
  const Ended bar = run("script -qec '" + job + "' /dev/null");
  EXPECT_EQ(0, bar.status) << bar.err;
  EXPECT_TRUE(std::regex_search(
      bar.out, std::regex("\r\\[=+ *\\] \\d+/40  loss [0-9.]+  \\d+ images/s  \\d+:\\d\\d left\x1b\\[K")))
      << bar.out;
  EXPECT_TRUE(std::regex_search(bar.out, std::regex("(\r\x1b\\[K|\n)epoch 2  train loss ")))
      << "the message shares a line with the bar: " << bar.out;
  EXPECT_TRUE(std::regex_search(bar.out, std::regex("40/40[^\r\n]*\r?\ntest accuracy "))) << bar.out;
  const Ended lines = run(job);
  EXPECT_EQ(std::string::npos, lines.out.find_first_of("\r\x1b")) << lines.out;
  for (const int done : {1, 7, 14, 21, 28, 35, 40})
    EXPECT_TRUE(std::regex_search(lines.out, std::regex("(^|\n)" + std::to_string(done) + "/40  loss ")))
        << done << ": " << lines.out;
}

TEST_F(CliMessages, TheProgressBarStaysOnOneLine) {
  for (const int columns : {1, 20, 50, 200}) {
    const Ended e = run("script -qec 'stty cols " + std::to_string(columns) + "; " + kTrain +
                        "--arch mlp --steps 10' /dev/null");
    EXPECT_EQ(0, e.status) << e.err;
    const std::regex drawn("\r([^\r\n\x1b]*)\x1b\\[K");
    int lines = 0;
    for (std::sregex_iterator it(e.out.begin(), e.out.end(), drawn); it != std::sregex_iterator(); ++it) {
      const std::string line = (*it)[1];
      if (line.empty() && columns > 1) continue;  // clears the bar for a message
      EXPECT_LT(std::ssize(line), columns) << line;
      EXPECT_EQ(columns >= 50, line.starts_with("[")) << columns << ": " << line;
      ++lines;
    }
    EXPECT_GT(lines, 0) << e.out;
  }
}

}  // namespace
}  // namespace tandem::testing
