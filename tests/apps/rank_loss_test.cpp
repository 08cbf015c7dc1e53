// A rank is lost in the middle of a job: the others end soon, say where, and the run can be continued.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <map>
#include <ostream>
#include <regex>
#include <set>
#include <thread>

#include <fmt/format.h>

#include "cli_resume.h"

namespace tandem::testing {
namespace {

using namespace std::chrono_literals;

constexpr double kDeadline = 3;  // seconds
const std::string kProgram = TANDEM_BIN "/rank_loss_program";

// The points, and a batch of each, as in rank_loss_program.cpp.
const std::vector<std::string> kPoints{"start",      "compute", "all-reduce", "evaluation",
                                       "checkpoint", "epoch",   "planning",   "end"};
const std::vector<std::string> kWays{"kill", "segv", "exit", "throw", "stop"};

struct Case {
  std::string point, way;
  int victim = 0;
  std::string schedule{};  // empty: two data-parallel ranks
  int ranks = 2;           // of a pipeline: the stages
};
std::string name_of(const Case& c) {
  std::string name = fmt::format("{}_{}_{}", c.point, c.way, c.victim);
  if (!c.schedule.empty()) name += fmt::format("_of_{}_{}", c.ranks, c.schedule);
  std::ranges::replace(name, '-', '_');
  return name;
}
void PrintTo(const Case& c, std::ostream* out) { *out << name_of(c); }
std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const auto& point : kPoints)
    for (const auto& way : kWays)
      for (const int victim : {0, 1}) cases.push_back({point, way, victim});
  for (const auto& way : kWays)
    for (const int victim : {0, 1}) cases.push_back({"swap", way, victim});
  return cases;
}

// Stages of a pipeline: each at each point of two, and each of four in the middle of a batch. With
// predictions, each in the middle of a batch.
std::vector<Case> pipeline_cases() {
  std::vector<Case> cases;
  for (const std::string schedule : {"1f1b", "dualpipe"})
    for (const std::string way : {"kill", "throw", "stop"}) {
      for (const std::string point : {"compute", "transfer", "evaluation", "checkpoint", "epoch"})
        for (const int victim : {0, 1}) cases.push_back({point, way, victim, schedule, 2});
      for (const std::string point : {"compute", "transfer"})
        for (const int victim : {0, 1, 2, 3}) cases.push_back({point, way, victim, schedule, 4});
    }
  for (const std::string way : {"kill", "throw", "stop"})
    for (const int victim : {0, 1}) cases.push_back({"transfer", way, victim, "spectrain", 2});
  return cases;
}

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// A zombie does not count: in containers without an init its exit status may never be collected.
bool runs(int pid) {
  std::ifstream stat(fmt::format("/proc/{}/stat", pid));
  std::string number, name, state;
  return stat >> number >> name >> state && state != "Z" && state != "X";
}

std::set<std::string> shared_files() {
  std::set<std::string> files;
  std::error_code none;
  for (const auto& file : fs::directory_iterator("/dev/shm", none)) files.insert(file.path());
  return files;
}

class RankLoss : public Resume, public ::testing::WithParamInterface<Case> {
 protected:
  // The same command begins and resumes. Its losses do not depend on how all-reduces are planned.
  std::string job(const std::string& output) const {
    const Case& c = GetParam();
    return kProgram +
           (c.schedule.empty() ? " --arch mlp --parallel data --allreduce libra --comm-threads 1,2"
                               : " --arch mlp-residual --parallel pipeline --microbatches 2 --schedule " +
                                     c.schedule + (c.schedule == "spectrain" ? "" : " --momentum 0")) +
           " --synthetic-train 1600 --synthetic-test 128 -b 64 --threads 1 --steps 60 --checkpoint-every 20 "
           "--tensorboard 0 --resume auto --log-level warning " +
           (c.point == "swap" ? "--memory-plan vdnn --copy-link 1GB/s " : "") +
           fmt::format("--deadline {} --output {} ", kDeadline, file(output));
  }
  static std::string ranks() { return fmt::format(TANDEM_MPIRUN " -np {} ", GetParam().ranks); }
  struct Log {
    std::vector<int> pids;
    std::string job;  // Open MPI's number, as it is in names of files
    double failed = 0;
  };
  Log log() const {
    Log log;
    std::ifstream in(file("log"));
    for (std::string word, rest; in >> word >> rest;) {
      if (word == "process") log.pids.push_back(std::stoi(rest));
      if (word == "job") log.job = rest;
      if (word == "fails" && log.failed == 0) log.failed = std::stod(rest);
    }
    return log;
  }
  std::string environment(const Case& c) const {
    return fmt::format("env TANDEM_RANK_LOSS={},{},{} TANDEM_RANK_LOSS_LOG={} ", c.point, c.way, c.victim,
                       file("log"));
  }
  void expect_all_gone(double ended, const Case& c) const;
  void expect_messages(const std::string& said, const Case& c) const;
  void expect_messages_of(int other, const std::string& said, const Case& c) const;
  void expect_resumes() const;
};

void RankLoss::expect_all_gone(double ended, const Case& c) const {
  const Log log = this->log();
  ASSERT_GT(log.failed, 0) << "the rank did not fail";
  EXPECT_EQ(std::ssize(log.pids), c.ranks);
  EXPECT_FALSE(log.job.empty());
  const double limit = c.way == "stop" ? kDeadline + 2 : 3;
  while (std::ranges::any_of(log.pids, runs) && now() < log.failed + limit) std::this_thread::sleep_for(10ms);
  const double took = std::max(ended, now()) - log.failed;
  for (const int pid : log.pids) EXPECT_FALSE(runs(pid)) << "process " << pid << " still runs";
  EXPECT_LE(took, limit);
  std::printf("rank-loss: %-10s  %-5s  rank %d  %.1f s%s\n", c.point.c_str(), c.way.c_str(), c.victim, took,
              c.schedule.empty() ? "" : fmt::format("  {} stages, {}", c.ranks, c.schedule).c_str());
}

// Rank, step, and collective, as far as there are any.
void RankLoss::expect_messages(const std::string& said, const Case& c) const {
  for (int other = 0; other < c.ranks; ++other)
    if (other != c.victim) expect_messages_of(other, said, c);
}

void RankLoss::expect_messages_of(int other, const std::string& said, const Case& c) const {
  const auto expect = [&](const std::string& pattern) {
    EXPECT_TRUE(std::regex_search(said, std::regex(pattern))) << pattern << " is not in:\n" << said;
  };
  const bool between = c.point == "epoch" || c.point == "planning" || c.point == "end";
  if (c.way == "stop") {
    if (c.point == "start") {
      expect(fmt::format("rank {} has waited .* to meet: rank {} has not come", other, c.victim));
      return;
    }
    expect(fmt::format("the deadline of 3 s passes: rank {} does not answer", c.victim));
    expect("; the last collectives of the ranks are in .*/run/collectives-RANK\\.jsonl; .* --resume auto ");
    expect(fmt::format(
        "rank {} has waited for [0-9.]+ s in {}", other,
        (between ? "between two runs, (send|receive|broadcast|barrier)|s in " : "") +
            std::string(c.schedule.empty() ? "batch [0-9]+, all-reduce of .* \\(channel"
                                           : "batch [0-9]+, (send|receive) of .* rank [0-3], channel") +
            " [0-9]+, [0-9]+ bytes?\\)"));
    if (!between)
      expect(
          fmt::format("the deadline passes while the lanes are in:\n"
                      "rank {}: (evaluation )?batch [0-9]+, instruction .*, on .*\n",
                      other));
    return;
  }
  if (c.way == "throw" && c.point != "start" && c.point != "end") {
    expect(fmt::format("rank {}(, (evaluation )?batch [0-9]+, instruction .*)?: thrown by the test", c.victim));
    return;
  }
  if (c.way == "exit")
    expect(fmt::format("Process name: \\[\\[[0-9]+,1\\],{}\\]{}", c.victim,
                       c.point == "start" ? "|1 process returned" : ""));
  else
    expect(fmt::format("process rank {} with PID [0-9]+ on node .* exited on\\s+signal", c.victim));
  if (c.point == "start" || c.point == "end") return;
  // mpirun kills ranks that take longer than a second to end, so of several, one must have reported.
  const std::string reporter = c.ranks > 2 ? "[0-3]" : std::to_string(other);
  expect(
      fmt::format("rank {0} got SIGTERM; it was (in: rank {0}: (evaluation )?batch [0-9]+, instruction |"
                  "between two steps, and (has waited |is in no call))",
                  reporter));
}

void RankLoss::expect_resumes() const {
  succeed("timeout 100 " + ranks() + job("run"));
  EXPECT_EQ(metrics("run").size(), 60u);
  using Results = std::pair<std::vector<std::pair<int, json>>, json>;
  static std::map<std::pair<std::string, int>, Results> uninterrupted;  // of all cases with such ranks
  const auto [found, fresh] = uninterrupted.try_emplace({GetParam().schedule, GetParam().ranks});
  if (fresh) {
    succeed("timeout 100 " + ranks() + job("reference"));
    found->second = {losses("reference"), read("reference/summary.json").at("train_loss")};
  }
  EXPECT_EQ(found->second.first, losses("run"));
  EXPECT_EQ(found->second.second, read("run/summary.json").at("train_loss"));
}

TEST_P(RankLoss, EndsTheJobAndTheRunCanBeContinued) {
  const Case& c = GetParam();
  const auto before = shared_files();
  const Ended e = run("timeout 60 " + ranks() + environment(c) + job("run"));
  const double ended = now();
  EXPECT_NE(0, e.status);
  EXPECT_NE(124, e.status) << "it had to be ended";
  expect_all_gone(ended, c);
  expect_messages(e.out + e.err, c);
  for (const std::string& file : shared_files())
    if (!before.contains(file)) {
      EXPECT_EQ(std::string::npos, file.find(log().job)) << file << " is left behind";
    }
  for (int other = 0; other < c.ranks; ++other)
    if (c.way == "stop" && c.point != "start" && c.point != "end" && other != c.victim) {
      EXPECT_TRUE(fs::exists(file(fmt::format("run/collectives-{}.jsonl", other))));
    }
  expect_resumes();
}

INSTANTIATE_TEST_SUITE_P(All, RankLoss, ::testing::ValuesIn(all_cases()),
                         [](const auto& info) { return name_of(info.param); });

INSTANTIATE_TEST_SUITE_P(Pipelines, RankLoss, ::testing::ValuesIn(pipeline_cases()),
                         [](const auto& info) { return name_of(info.param); });

// Each rank on a machine of its own, as far as the network tells.
class RankLossOverNetwork : public RankLoss {};

TEST_P(RankLossOverNetwork, EndsTheJobAndTheRunCanBeContinued) {
  const Case& c = GetParam();
  const std::string spaces = run("ip netns list").out;
  const Ended e =
      run("timeout 60 " TANDEM_SOURCE "/scripts/cluster 2 --link 1Gb/s -- " + environment(c) + job("run"));
  const double ended = now();
  EXPECT_NE(0, e.status);
  EXPECT_NE(124, e.status) << "it had to be ended";
  expect_all_gone(ended, c);
  expect_messages(e.out + e.err, c);
  expect_resumes();
  EXPECT_EQ(spaces, run("ip netns list").out) << "a namespace is left behind";
}

INSTANTIATE_TEST_SUITE_P(All, RankLossOverNetwork,
                         ::testing::Values(Case{"all-reduce", "kill", 1}, Case{"all-reduce", "stop", 0}),
                         [](const auto& info) { return name_of(info.param); });

}  // namespace
}  // namespace tandem::testing
