// Runs that signals interrupt at random moments: their checkpoints, their messages, and what they leave
// running.
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <random>
#include <thread>

#include <tandem/train/checkpoint.h>

#include "cli.h"
#include "seed.h"

namespace tandem::testing {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

/// A command in a process group of its own.
class Started {
 public:
  Started(const std::string& command, const std::string& out) : pid_(fork()) {
    if (pid_ == 0) {
      setpgid(0, 0);
      const std::string shell = "exec " + command + " >" + out + " 2>&1";
      execl("/bin/sh", "sh", "-c", shell.c_str(), nullptr);
      _exit(127);
    }
    setpgid(pid_, pid_);
  }
  ~Started() { ::kill(-pid_, SIGKILL); }
  Started(const Started&) = delete;
  Started& operator=(const Started&) = delete;
  void signal(int number) const { ::kill(pid_, number); }
  /// Returns the exit status, or 128 + signal; −1 if the command has not ended in time.
  int end(std::chrono::seconds patience) {
    for (const auto begin = Clock::now(); Clock::now() - begin < patience; std::this_thread::sleep_for(5ms))
      if (int status = 0; waitpid(pid_, &status, WNOHANG) == pid_)
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return -1;
  }
  bool is_gone() const { return ::kill(-pid_, 0) != 0; }

 private:
  const pid_t pid_;
};

class Interruptions : public Cli {
 protected:
  std::int64_t newest(const std::string& run) const {
    std::vector<std::string> damaged;
    const auto found = newest_checkpoint(file(run) + "/checkpoints", damaged);
    EXPECT_TRUE(damaged.empty()) << damaged[0];
    return found ? found->step : 0;
  }
  // If a run says from which batch another one continues, that is the newest checkpoint's.
  static void expect_right_step(const std::string& said, std::int64_t newest) {
    const std::string before = "--resume auto continues from batch ";
    if (const std::size_t at = said.find(before); at != said.npos) {
      EXPECT_EQ(newest, std::stoll(said.substr(at + before.size()))) << said;
    }
  }
};

TEST_F(Interruptions, ASignalSavesACheckpointAndSaysHowToGoOn) {
  std::vector<Ending> endings = kEndings;
  endings.push_back({"USR1", "interrupted by SIGUSR1", 138});
  endings.push_back({"HUP", "interrupted by SIGHUP", 129});
  for (const auto& [signal, word, status] : endings) {
    SCOPED_TRACE(signal);
    const std::string name = "by-" + signal, metrics = file(name + "/metrics.jsonl");
    const std::string job = kTrain + "--arch mlp --epochs 100000 --output " + file(name);
    const Ended e = run("env --default-signal=HUP " + job + " & until [ -s " + metrics +
                        " ]; do sleep 0.02; done; kill -" + signal + " $!; wait $!");
    EXPECT_EQ(status, e.status) << e.err;
    EXPECT_EQ("train_cifar: " + word + "\n", e.err);
    const std::int64_t step = newest(name);
    EXPECT_GT(step, 0);
    EXPECT_EQ(step, std::ssize(this->metrics(name))) << "the steps that were recorded";
    EXPECT_NE(std::string::npos,
              e.out.find("the same command with --resume auto continues from batch " + std::to_string(step)))
        << e.out;
    const std::string whole = "whole-" + signal, steps = " --steps " + std::to_string(step + 5),
                      weights = "/checkpoints/step-" + std::to_string(step + 5) + "/model.safetensors";
    ASSERT_TRUE(succeeds(kTrain + "--arch mlp --resume auto --output " + file(name) + steps));
    ASSERT_TRUE(succeeds(kTrain + "--arch mlp --output " + file(whole) + steps));
    EXPECT_EQ(read_file(file(whole + weights)), read_file(file(name + weights)));
  }
}

// While all-reduces are measured and planned, runs are cut into short ones.
// Before there is anything to save, a run leaves no directory that it has just made.
TEST_F(Interruptions, WhileImagesAreDrawnNothingIsLeft) {
  for (const char* models : {"", " --models 2 --sweep lr=0.1,0.01"}) {
    SCOPED_TRACE(models);
    write("out", "");
    Started run(kTrain + "--synthetic-train 1000000 --output " + file("new/run") + models, file("out"));
    for (int i = 0; i < 3000 && read_file(file("out")).find("draws 1000000 images") == std::string::npos; ++i)
      std::this_thread::sleep_for(10ms);
    EXPECT_TRUE(fs::exists(file("new/run")));
    run.signal(SIGINT);
    EXPECT_EQ(130, run.end(30s)) << read_file(file("out"));
    EXPECT_FALSE(fs::exists(file("new"))) << read_file(file("out"));
  }
}

TEST_F(Interruptions, ASignalWhileAllReducesArePlanned) {
  for (const char* parallel :
       {"data --ranks 2 --allreduce libra",
        "pipeline --stages 2 --ranks 2 --schedule dualpipe --momentum 0 --allreduce libra"}) {
    SCOPED_TRACE(parallel);
    const std::string name = std::string(parallel).substr(0, 4),
                      job = kTrain + "--arch mlp --epochs 100000 --parallel " + parallel + " --output " +
                            file(name);
    for (int i = 0; i < 6; ++i) {
      Started run(job + " --resume auto", file("out"));
      std::this_thread::sleep_for(150ms + 40ms * i);
      run.signal(SIGINT);
      EXPECT_EQ(130, run.end(30s)) << read_file(file("out"));
    }
    EXPECT_GT(newest(name), 0);
  }
}

TEST_F(Interruptions, UnderNohupAClosedTerminalEndsNothing) {
  const std::string metrics = file("run/metrics.jsonl");
  const Ended e = run("nohup " + kTrain + "--arch mlp --steps 200 --output " + file("run") +
                      " & until [ -s " + metrics + " ]; do sleep 0.02; done; kill -HUP $!; wait $!");
  EXPECT_EQ(0, e.status) << e.err;
  EXPECT_EQ(200, newest("run"));
}

// Ctrl-C in a terminal ends `tee`, too.
TEST_F(Interruptions, ARunWhoseReaderIsGoneStillSavesItsCheckpoint) {
  const std::string metrics = file("run/metrics.jsonl"), status = file("status"),
                    job = kTrain + "--arch mlp --epochs 100000 --output " + file("run");
  const Ended e =
      run("{ " + job + " & echo $! >" + file("pid") + "; wait $!; echo $? >" + status +
          "; } 2>/dev/null | head -n 1 & until [ -s " + metrics + " ]; do sleep 0.02; done; sleep 0.5; " +
          "kill -INT $(cat " + file("pid") + "); timeout 20 sh -c 'until [ -s " + status +
          " ]; do sleep 0.02; done'; cat " + status);
  EXPECT_TRUE(e.out.ends_with("130\n")) << e.out << "\n141 is SIGPIPE";
  EXPECT_EQ(newest("run"), std::ssize(this->metrics())) << "the steps that were recorded";
  EXPECT_GT(newest("run"), 0);
}

// A run with several batches in flight drains them for its last checkpoint.
TEST_F(Interruptions, APipelineDrainsBeforeItsLastCheckpoint) {
  const std::string job =
      kTrain +
      "--arch mlp --parallel pipeline --stages 2 --schedule dualpipe --momentum 0 --epochs "
      "100000 --output " +
      file("run");
  const Ended e = run(job + " & until [ -s " + file("run/metrics.jsonl") +
                      " ]; do sleep 0.02; done; kill -INT $!; wait $!");
  EXPECT_EQ(130, e.status) << e.err;
  const std::int64_t step = newest("run");
  EXPECT_EQ(step, std::ssize(metrics()));
  const Ended again = run(job + " --resume auto --steps " + std::to_string(step + 3));
  EXPECT_EQ(0, again.status) << again.err;
  EXPECT_EQ(step + 3, std::ssize(metrics()));
}

TEST_F(Interruptions, EndsTheEvaluationOfACompleteRun) {
  const std::string job =
      kTrain + "--arch resnet20 --steps 1 -b 8 --output " + file("run") + " --synthetic-test ";
  ASSERT_TRUE(succeeds(job + "10000"));
  const Ended e = run(job + "10000 --resume auto >" + file("out") + " & until grep -q evaluates " +
                      file("out") + "; do sleep 0.02; done; kill -INT $!; wait $!");
  EXPECT_EQ(130, e.status) << e.err;
}

TEST_F(Interruptions, OfAHundredAtRandomMomentsNoneDamagesACheckpoint) {
  std::mt19937_64 random(run_seed());
  SCOPED_TRACE("seed " + std::to_string(run_seed()));
  const std::string job =
      kTrain + "--arch mlp --epochs 1000000 --checkpoint-every 7 --resume auto --output " + file("run");
  std::int64_t last = 0;
  for (int i = 0; i < 100; ++i) {
    const int signal = std::array{SIGINT, SIGTERM, SIGUSR1, SIGKILL, SIGSTOP}[random() % 5];
    SCOPED_TRACE("interruption " + std::to_string(i) + ", signal " + std::to_string(signal));
    fs::remove(file("out"));  // a signal can come before the shell has opened it
    Started run(job, file("out"));
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 400));
    run.signal(signal);
    if (signal == SIGSTOP) {
      std::this_thread::sleep_for(50ms);
      run.signal(SIGCONT);
      run.signal(SIGINT);
    }
    const int status = run.end(30s);
    const std::string out = fs::exists(file("out")) ? read_file(file("out")) : "";
    const int expected = signal == SIGSTOP ? SIGINT : signal;
    ASSERT_EQ(128 + expected, status) << out;
    ASSERT_TRUE(run.is_gone());
    if (!out.empty() && signal != SIGKILL) {
      ASSERT_NE(std::string::npos, out.find(expected == SIGTERM ? "terminated" : "interrupted")) << out;
    }
    const std::int64_t now = newest("run");
    ASSERT_GE(now, last) << "a checkpoint was lost";
    expect_right_step(out, now);
    last = now;
  }
  ASSERT_GT(last, 0);
  // What is left is what an uninterrupted run has.
  ASSERT_TRUE(succeeds(kTrain + "--arch mlp --checkpoint-every 7 --resume auto --output " + file("run") +
                       " --steps " + std::to_string(last + 2)));
  ASSERT_EQ(
      0,
      run(kTrain + "--arch mlp --output " + file("whole") + " --steps " + std::to_string(last + 2)).status);
  const std::string weights = "/checkpoints/step-" + std::to_string(last + 2) + "/model.safetensors";
  EXPECT_EQ(read_file(file("whole" + weights)), read_file(file("run" + weights)));
}

// mpirun passes the signals on to the ranks, and gives them a second after the first two.
TEST_F(Interruptions, OfAnMpiJobAtRandomMomentsNoneDamagesACheckpoint) {
  if (!TANDEM_HAS_MPIRUN) GTEST_SKIP() << "there is no mpirun";
  std::mt19937_64 random(run_seed());
  SCOPED_TRACE("seed " + std::to_string(run_seed()));
  const std::string job = TANDEM_MPIRUN " -np 2 " + kTrain + "--arch mlp --threads 1 --checkpoint-every 7 ",
                    output = "--resume auto --output " + file("run");
  std::int64_t last = 0;
  for (int i = 0; i < 12; ++i) {
    const int signal = std::array{SIGINT, SIGTERM, SIGUSR1}[random() % 3];
    SCOPED_TRACE("interruption " + std::to_string(i) + ", signal " + std::to_string(signal));
    fs::remove(file("out"));
    Started run(job + "--epochs 1000000 " + output, file("out"));
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 2000));
    run.signal(signal);
    const int status = run.end(30s);
    const std::string out = fs::exists(file("out")) ? read_file(file("out")) : "";
    ASSERT_TRUE(status == 1 || status == 128 + signal || status == 128 + SIGTERM || status == 128 + SIGKILL)
        << status << ": " << out;  // 1 and the last two are mpirun's, which ends ranks
    ASSERT_EQ(std::string::npos, out.find("another run is writing there")) << "a rank was left running";
    const std::int64_t now = newest("run");
    ASSERT_GE(now, last) << "a checkpoint was lost; " << out;
    expect_right_step(out, now);
    last = now;
  }
  ASSERT_GT(last, 0);
  const std::string steps = " --steps " + std::to_string(last + 2);
  ASSERT_TRUE(succeeds(job + output + steps));
  ASSERT_TRUE(succeeds(job + "--output " + file("whole") + steps));
  const std::string weights = "/checkpoints/step-" + std::to_string(last + 2) + "/model.safetensors";
  EXPECT_EQ(read_file(file("whole" + weights)), read_file(file("run" + weights)));
}

// The other rank does not answer, so no checkpoint can be agreed on.
TEST_F(Interruptions, NameTheRankThatDoesNotAnswer) {
  if (!TANDEM_HAS_MPIRUN) GTEST_SKIP() << "there is no mpirun";
  const std::string pids = file("pid");
  // Each rank writes its process's number, and then is train_cifar.
  Started job(TANDEM_MPIRUN " -np 2 sh -c 'echo $$ > " + pids + "$OMPI_COMM_WORLD_RANK; exec " + kTrain +
                  "--arch mlp --threads 1 --epochs 1000000 --output " + file("run") + "'",
              file("out"));
  const std::string metrics = file("run/metrics.jsonl");
  for (int i = 0; i < 1000 && !(fs::exists(metrics) && fs::file_size(metrics) > 0); ++i)
    std::this_thread::sleep_for(20ms);
  const auto pid_of = [&](int rank) { return std::stoi(read_file(pids + std::to_string(rank))); };
  const int stopped = pid_of(1);
  ::kill(stopped, SIGSTOP);
  ::kill(pid_of(0), SIGUSR1);
  std::this_thread::sleep_for(6s);
  ::kill(stopped, SIGCONT);
  EXPECT_GT(job.end(30s), 0);
  EXPECT_NE(std::string::npos, read_file(file("out")).find("rank 1 has not answered for 5 s: it is stopped"))
      << read_file(file("out"));
}

// The checkpoint is larger than a file may be, and the trace waits for a reader while the signal comes.
TEST_F(Interruptions, ASignalDoesNotHideWhyARunFails) {
  ASSERT_EQ(0, mkfifo(file("pipe").c_str(), 0600));
  const std::string out = file("out"), job = kTrain + "--arch mlp --steps 3 --output " + file("run");
  const Ended e =
      run("ulimit -f 1000; " + job + " --trace " + file("pipe") + " >" + out +
          " & until grep -q 'waits for another program' " + out +
          "; do sleep 0.02; done; kill -INT $!; sleep 0.3; cat " + file("pipe") + " >/dev/null; wait $!");
  EXPECT_EQ(130, e.status) << e.err;
  EXPECT_NE(std::string::npos,
            e.err.find("train_cifar: interrupted: the run is complete, but its last checkpoint "
                       "could not be saved"))
      << e.err;
}

// The others wait for the rank that still writes, here a trace that nothing reads yet.
TEST_F(Interruptions, ASignalAtTheEndOfAnMpiJobLosesNothing) {
  if (!TANDEM_HAS_MPIRUN) GTEST_SKIP() << "there is no mpirun";
  ASSERT_EQ(0, mkfifo(file("pipe").c_str(), 0600));
  Started job(TANDEM_MPIRUN " -np 2 " + kTrain + "--arch mlp --threads 1 --steps 3 --output " + file("run") +
                  " --trace " + file("pipe"),
              file("out"));
  const auto said = [&] { return fs::exists(file("out")) ? read_file(file("out")) : ""; };
  for (int i = 0; i < 1000 && said().find("waits for another program") == std::string::npos; ++i)
    std::this_thread::sleep_for(20ms);
  job.signal(SIGUSR1);
  std::this_thread::sleep_for(500ms);
  ASSERT_EQ(-1, job.end(0s)) << "it has ended: " << said();
  ASSERT_TRUE(succeeds("cat " + file("pipe") + " >" + file("trace.json")));
  EXPECT_EQ(0, job.end(30s)) << said();
  EXPECT_EQ("tandem trace", read("trace.json").at("format"));
  EXPECT_EQ(3, newest("run"));
}

}  // namespace
}  // namespace tandem::testing
