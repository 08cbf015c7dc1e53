// How a job of MPI processes ends if one rank ends, observed from outside.
#include <sys/wait.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <tandem/dist/mpi_comm.h>

#include "ranks.h"

namespace tandem::testing {
namespace {

using namespace std::chrono_literals;

struct Ended {
  int status = 0;       ///< exit status of mpirun
  double seconds = 0;   ///< from rank 1's end to mpirun's
  double ended_at = 0;  ///< steady clock
  std::string output;
  std::vector<int> pids;
};

Ended run_job(int ranks, const std::string& scene) {
  const std::string command =
      fmt::format("{} -np {} {} {} 2>&1", TANDEM_MPIRUN, ranks, TANDEM_MPI_PROGRAM, scene);
  Ended ended;
  FILE* pipe = popen(command.c_str(), "r");
  char line[4096];
  while (pipe && std::fgets(line, sizeof line, pipe)) {
    ended.output += line;
    // Simultaneous output of several ranks may share a line.
    int pid = 0;
    if (const char* at = std::strstr(line, "pid "); at && std::sscanf(at, "pid %d", &pid) == 1)
      ended.pids.push_back(pid);
    if (const char* at = std::strstr(line, "end at ")) std::sscanf(at, "end at %lf", &ended.ended_at);
  }
  const int status = pclose(pipe);
  ended.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  ended.seconds = std::chrono::duration<double>(now).count() - ended.ended_at;
  return ended;
}

// A zombie does not count: in containers without an init its exit status may never be collected.
bool runs(int pid) {
  std::ifstream stat(fmt::format("/proc/{}/stat", pid));
  std::string number, name, state;
  return stat >> number >> name >> state && state != "Z" && state != "X";
}

void expect_all_gone(const Ended& ended, int ranks) {
  EXPECT_NE(ended.status, 0) << ended.output;
  EXPECT_GT(ended.ended_at, 0) << ended.output;
  EXPECT_LE(ended.seconds, 3.0) << ended.output;
  EXPECT_EQ(ended.pids.size(), static_cast<std::size_t>(ranks)) << ended.output;
  const auto limit =
      std::chrono::steady_clock::time_point(3s) +
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(ended.ended_at));
  for (const int pid : ended.pids) {
    while (runs(pid) && std::chrono::steady_clock::now() < limit) std::this_thread::sleep_for(10ms);
    EXPECT_FALSE(runs(pid)) << "process " << pid << " still runs";
  }
}

TEST(MpiJob, AKilledRankEndsTheOthers) {
  expect_all_gone(run_job(2, "kill"), 2);
  expect_all_gone(run_job(4, "kill"), 4);
}

TEST(MpiJob, AnErrorThatUnwindsMainDoesNotHangTheJob) { expect_all_gone(run_job(3, "throw"), 3); }

TEST(MpiJob, AbortReachesEveryRankWithItsReason) {
  const Ended ended = run_job(4, "abort");
  expect_all_gone(ended, 4);
  EXPECT_EQ(ended.status, 3) << "the code given to end_mpi_job";
  for (const int rank : {0, 2, 3}) {
    const std::string begin = fmt::format("rank {} aborted at ", rank);
    const auto at = ended.output.find(begin);
    ASSERT_NE(at, std::string::npos) << ended.output;
    EXPECT_LT(std::stod(ended.output.substr(at + begin.size())) - ended.ended_at, 1.0);
  }
  EXPECT_NE(ended.output.find(": rank 1: the loss is NaN"), std::string::npos) << ended.output;
}

TEST(MpiJob, DifferentTransferSizesAreNamedAndTheSenderReturns) {
  const Ended ended = run_job(2, "mismatch");
  expect_all_gone(ended, 2);
  const std::string told = "channel 4: rank 1 receives 200000 bytes, but rank 0 sends 300000 bytes";
  EXPECT_NE(ended.output.find("told: " + told), std::string::npos) << ended.output;
  EXPECT_NE(ended.output.find(": " + told, ended.output.find("rank 0 aborted")), std::string::npos)
      << ended.output;
}

TEST(MpiJob, ARankThatMissesTheAgreementIsNamed) {
  const Ended ended = run_job(2, "miss");
  expect_all_gone(ended, 2);
  for (const char* words : {" s for all 2 ranks to meet: rank 1 has not come. Every rank must "
                            "run this program. The job ends after 1 s",
                            " s for all 2 ranks to meet: rank 1 has not come. The job ends"})
    EXPECT_NE(ended.output.find(words), std::string::npos) << ended.output;
}

}  // namespace
}  // namespace tandem::testing
