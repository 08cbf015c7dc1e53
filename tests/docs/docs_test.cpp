// The commands in the documentation work and leave a checkout clean.
#include <set>
#include <sstream>

#include "cli.h"

namespace tandem::testing {
namespace {

namespace fs = std::filesystem;

// The indented blocks of a Markdown file, without their indentation.
std::vector<std::string> blocks(const std::string& file) {
  std::istringstream in(read_file(TANDEM_SOURCE "/" + file));
  std::vector<std::string> result;
  bool inside = false;
  for (std::string line; std::getline(in, line);) {
    const bool indented = line.starts_with("    ");
    if (indented && !inside) result.emplace_back();
    if (indented) result.back() += line.substr(4) + "\n";
    inside = indented || (inside && line.empty());
  }
  return result;
}

std::vector<std::string> blocks_with(const std::string& file, const std::string& words) {
  auto all = blocks(file);
  std::erase_if(all, [&](const std::string& b) { return b.find(words) == std::string::npos; });
  EXPECT_FALSE(all.empty()) << file << " has no example with " << words;
  return all;
}

// The part of a checkout that the examples use. Its programs do less work than requested.
class Docs : public Cli {
 protected:
  void SetUp() override {
    Cli::SetUp();
    fs::create_directories(file("build/release/bin"));
    fs::create_directories(file("docs"));
    fs::create_directory_symlink(TANDEM_SOURCE "/docs/programs", file("docs/programs"));
    script(
        "train_cifar",
        R"(case "$*" in *--data*|*--config*) ;; *) set -- "$@" --synthetic-train 256 --synthetic-test 50;; esac
exec )" TANDEM_BIN "/train_cifar \"$@\" --steps 2");
    script("tandem", R"(case "$1" in make-data) set -- "$@" --train 640 --test 50;; esac
exec )" TANDEM_BIN "/tandem \"$@\"");
  }
  void script(const std::string& name, const std::string& text) const {
    const std::string path = write("build/release/bin/" + name, "#!/bin/sh\n" + text + "\n");
    fs::permissions(path, fs::perms::owner_all);
  }
  Ended run_here(const std::string& commands) const {
    return run("set -e; cd " + directory_.path() + "\n" + commands);
  }
};

TEST_F(Docs, PlanExamplesRun) {
  for (const std::string& example : blocks_with("docs/plan.md", "train_cifar")) {
    SCOPED_TRACE(example);
    const Ended e = run_here(example);
    EXPECT_EQ(0, e.status) << e.err;
    EXPECT_EQ(std::string::npos, e.out.find("does not lower the peak")) << e.out;
  }
}

TEST_F(Docs, CheckpointExampleRunsAndResumes) {
  const std::string example = blocks_with("docs/checkpoints.md", "train_cifar")[0];
  for (const char* words : {"train loss", "resumes at batch 2"}) {
    const Ended e = run_here(example);
    EXPECT_EQ(0, e.status) << e.err;
    EXPECT_NE(std::string::npos, e.out.find(words)) << e.out;
  }
}

TEST_F(Docs, ProgramExampleIsVerifiedAndRunsAsDrawn) {
  const Ended e = run_here(blocks_with("docs/program.md", "tandem verify")[0]);
  EXPECT_EQ(0, e.status) << e.err;
  EXPECT_NE(std::string::npos, e.out.find("state weight: 2 versions")) << e.out;
  const std::string drawing = blocks_with("docs/program.md", "==")[0];
  EXPECT_NE(std::string::npos, e.out.find(drawing)) << e.out << "is not\n" << drawing;
}

// To compare an output with a block, because blocks() drops empty lines.
std::string without_newlines(std::string text) {
  std::erase(text, '\n');
  return text;
}

TEST_F(Docs, AllReducesOverlapAsDrawn) {
  const std::string example = blocks_with("docs/data-parallel.md", "$ tandem sim all-reduce")[0];
  const std::size_t end = example.find('\n');
  const Ended e = run(TANDEM_BIN + ("/" + example.substr(2, end - 2)));
  EXPECT_EQ(0, e.status) << e.err;
  EXPECT_EQ(without_newlines(e.out), without_newlines(example.substr(end + 1)));
}

// Runs the command of a block, "$ tandem …", and compares what it prints with the rest of the block.
void expect_shown(const std::string& block) {
  const std::size_t end = block.find('\n');
  const Ended e = run("cd " TANDEM_SOURCE " && " TANDEM_BIN "/" + block.substr(2, end - 2));
  EXPECT_EQ(0, e.status) << e.err;
  EXPECT_NE(std::string::npos, without_newlines(e.out).find(without_newlines(block.substr(end + 1))))
      << e.out << "is not\n"
      << block;
}

TEST_F(Docs, PipelinesRunAsDrawn) {
  const auto drawings = blocks_with("docs/pipelines.md", "$ tandem ");
  EXPECT_EQ(15u, drawings.size());
  for (const std::string& drawing : drawings) expect_shown(drawing);
}

TEST_F(Docs, MemoryPlansCostWhatIsShown) {
  const auto tables = blocks_with("docs/memory.md", "$ tandem plan memory");
  EXPECT_EQ(5u, tables.size());
  for (const std::string& table : tables) expect_shown(table);
}

TEST_F(Docs, ReadmeShowsTheWholeTestedProgram) {
  const std::string program = read_file(TANDEM_SOURCE "/apps/images.cpp");
  const std::string code = program.substr(program.find('\n') + 1);  // without the comment at the top
  EXPECT_NE(std::string::npos, read_file(TANDEM_SOURCE "/README.md").find("```cpp\n" + code + "```"))
      << "README.md does not contain apps/images.cpp";
}

TEST_F(Docs, ReadmesModelIsThatOfATestedProgram) {
  const std::string readme = read_file(TANDEM_SOURCE "/README.md");
  const std::size_t begin = readme.find("```cpp\n") + 7;  // its first block
  std::istringstream model(readme.substr(begin, readme.find("```", begin) - begin));
  const std::string program = read_file(TANDEM_SOURCE "/apps/spiral.cpp");
  std::size_t at = 0, lines = 0;
  for (std::string line; std::getline(model, line); ++lines) {
    at = program.find(line + "\n", at);
    ASSERT_NE(std::string::npos, at) << "apps/spiral.cpp does not go on with: " << line;
  }
  EXPECT_GT(lines, 20U);
}

// Run twice, since the second time there is something to replace.
TEST_F(Docs, CommandsOfTrainingRunTwiceAndLeaveOnlyIgnoredFiles) {
  const auto examples = blocks_with("docs/training.md", "train_cifar");
  ASSERT_EQ(1u, examples.size());
  std::string commands;
  std::istringstream lines(examples[0]);
  for (std::string line; std::getline(lines, line);)
    if (const bool by_mpi = line.starts_with("mpirun"); !by_mpi || TANDEM_HAS_MPIRUN) commands += line + "\n";
  commands =
      "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1\n" +
      commands;
  for (const char* time : {"first", "second"}) {
    const Ended e = run_here(commands);
    EXPECT_EQ(0, e.status) << time << " time: " << e.err;
  }
  std::set<std::string> left;
  for (const auto& entry : fs::directory_iterator(directory_.path()))
    left.insert(entry.path().filename().string());
  EXPECT_EQ((std::set<std::string>{"build", "data", "docs", "runs"}), left);
  const std::string ignored = read_file(TANDEM_SOURCE "/.gitignore");
  for (const char* folder : {"/data/\n", "/runs/\n"})
    EXPECT_NE(std::string::npos, ignored.find(folder)) << folder;
}

TEST_F(Docs, ReadmeShowsTheSimulatorsTimeline) {
  std::istringstream lines(blocks_with("README.md", "$ build/release/bin/tandem sim")[0]);
  std::string command;
  std::getline(lines, command);
  const Ended e = run_here(command.substr(2));
  EXPECT_EQ(0, e.status) << e.err;
  int drawn = 0;
  for (std::string line; std::getline(lines, line); ++drawn)
    EXPECT_NE(std::string::npos, e.out.find(line + "\n")) << line << "\nis not in\n" << e.out;
  EXPECT_GT(drawn, 0);
}

}  // namespace
}  // namespace tandem::testing
