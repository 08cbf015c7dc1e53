// The programs under mpirun: a failure on several ranks is reported once, with its place.
#include <algorithm>
#include <chrono>
#include <map>
#include <regex>
#include <sstream>
#include <thread>

#include <fmt/format.h>
#include <sched.h>

#include "cli.h"

namespace tandem::testing {
namespace {

using CliMpi = Cli;

const std::string kTwoRanks = TANDEM_MPIRUN " -np 2 ";

// The program's own lines in the output of mpirun. A rank that mpirun ends before it receives the error may
// report its position.
std::string said(const Ended& e) {
  std::string lines;
  std::istringstream all(e.err);
  for (std::string line; std::getline(all, line);)
    if (line.starts_with("train_cifar: ") && line.find(" got SIGTERM; ") == std::string::npos)
      lines += line + "\n";
  return lines;
}

int count(const std::string& text, const std::string& part) {
  int n = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

// With batches in flight, an update with non-finite values may come before all ranks have stopped. The value
// is then in a state.
TEST_F(CliMpi, NamesStepAndModuleOfANonFiniteLossOnAnyRank) {
  for (const std::string parallel : {"data", "pipeline", "pipeline --schedule dualpipe"}) {
    const Ended e = run(kTwoRanks + kTrain + "--lr 1e12 --steps 20 --parallel " + parallel);
    SCOPED_TRACE(parallel + ": " + e.err);
    EXPECT_EQ(1, e.status);
    const std::string where = parallel.ends_with("dualpipe") ? "(module|the state)" : "module";
    EXPECT_TRUE(std::regex_match(
        said(e), std::regex("train_cifar: the loss is nan at step [0-9]+; the first value .* " + where +
                            " 'block.*\n")));
  }
}

// Each replica has its own batch-norm statistics until evaluation.
TEST_F(CliMpi, ProcessesTrainAndEvaluateAsThreadsDo) {
  const std::string job = kTrain + "--arch convnet --steps 4 --parallel data --ranks 2 --output ";
  ASSERT_TRUE(succeeds(job + file("threads")));
  ASSERT_TRUE(succeeds(kTwoRanks + job + file("processes")));
  const nlohmann::json threads = read("threads/summary.json"), processes = read("processes/summary.json");
  EXPECT_EQ(threads["train_loss"], processes["train_loss"]);
  EXPECT_EQ(threads["test_accuracy"], processes["test_accuracy"]);
}

// The first stage's numbers go to the process of the last stage, which writes.
TEST_F(CliMpi, ProcessesMeasurePredictionsAsThreadsDo) {
  const std::string job = kTrain +
                          "--arch mlp-residual --steps 5 --threads 1 --parallel pipeline --stages 2 "
                          "--schedule spectrain --measure-prediction 1,2 --output ";
  ASSERT_TRUE(succeeds(job + file("threads")));
  ASSERT_TRUE(succeeds(kTwoRanks + job + file("processes")));
  const auto threads = metrics("threads"), processes = metrics("processes");
  ASSERT_EQ(5u, threads.size());
  ASSERT_EQ(5u, processes.size());
  for (std::size_t b = 1; b < 5; ++b) {
    EXPECT_EQ(threads[b].at("loss"), processes[b].at("loss"));
    EXPECT_EQ(threads[b].at("prediction"), processes[b].at("prediction"));
  }
}

// All policies that plan from times, by both algorithms; those that choose threads, from 1 to 3.
TEST_F(CliMpi, ProcessesPlanTheirAllReducesTogether) {
  struct Case {
    int ranks;
    std::string policy, collective, threads;
  };
  const std::string job =
      kTrain + "-b 60 --drop-last --arch mlp --steps 44 --parallel data --threads 1 --link 1GB/s ";
  const auto losses = [&](int ranks, const std::string& output, const std::string& options) {
    const Ended e = run(TANDEM_MPIRUN " -np " + std::to_string(ranks) + " " + job + options + " --output " +
                        file(output));
    EXPECT_EQ(0, e.status) << e.err;
    EXPECT_EQ(output.starts_with("wfbp"), e.out.find(" after 40 batches: ") == std::string::npos) << e.out;
    std::vector<nlohmann::json> losses;
    for (const auto& line : metrics(output)) losses.push_back(line.at("loss"));
    EXPECT_EQ(losses.size(), 44U);
    return losses;
  };
  std::map<int, std::vector<nlohmann::json>> wfbp;
  for (const int ranks : {2, 3, 4})
    wfbp[ranks] = losses(ranks, "wfbp" + std::to_string(ranks), "--allreduce wfbp");
  for (const Case& c : std::vector<Case>{{2, "libra", "direct", "1,2"},
                                         {2, "horovod", "ring", ""},
                                         {3, "libra", "ring", "2,3"},
                                         {3, "mg-opt", "direct", ""},
                                         {4, "libra-m", "ring", "1,2,3"},
                                         {4, "mg-wfbp", "direct", ""}}) {
    const std::string output = c.policy + std::to_string(c.ranks);
    SCOPED_TRACE(output);
    EXPECT_EQ(wfbp[c.ranks], losses(c.ranks, output,
                                    "--allreduce " + c.policy + " --collective " + c.collective +
                                        (c.threads.empty() ? "" : " --comm-threads " + c.threads)));
    const nlohmann::json run = read(output + "/all-reduce.json").at("run");
    EXPECT_EQ(run.at("ranks"), c.ranks);
    EXPECT_EQ(run.at("transport"), "mpi");
  }
}

TEST_F(CliMpi, ProcessesDoNotPlanFromAMeasurementOfThreads) {
  const std::string job =
      kTrain + "--arch mlp --steps 44 --parallel data --ranks 2 --threads 1 --link 1GB/s,50us --output ";
  ASSERT_TRUE(succeeds(job + file("threads") + " --dump-profile"));
  nlohmann::json saved = read("threads/all-reduce.json");
  EXPECT_EQ(saved.at("run").at("transport"), "threads");
  saved["run"].erase("transport");
  write("older.json", saved.dump());
  for (const auto& [plan, why] : std::vector<std::pair<std::string, std::string>>{
           {"threads/all-reduce.json", "its transport is threads, not mpi"},
           {"older.json", "an older version wrote it"}}) {
    const Ended e = run(kTwoRanks + job + file("processes") + " --force --plan " + file(plan));
    ASSERT_EQ(0, e.status) << e.err;
    expect_words(e.out, {"the saved all-reduces do not fit this run", why, " after 40 batches: "});
  }
}

TEST_F(CliMpi, ProcessesLoadTheirOwnShares) {
  for (const std::string parallel : {"data", "pipeline --schedule pipedream"}) {
    const std::string job = kTrain + "--arch mlp --steps 12 -b 60 --augment pad-crop,flip --parallel " +
                            parallel + " --threads 1 --force --output ";
    ASSERT_TRUE(succeeds(job + file("threads")));
    const Ended e = run(kTwoRanks + job + file("processes") + " -j 1");
    ASSERT_EQ(0, e.status) << e.err;
    EXPECT_EQ(read("threads/summary.json")["train_loss"], read("processes/summary.json")["train_loss"]);
  }
}

// By default a machine's ranks share its cores, and all ranks take the least of what that gives.
// They are the same on all ranks, since losses depend on them: those of the rank that has the fewest.
TEST_F(CliMpi, DefaultThreadsFollowFromTheRanksOfAMachine) {
  const std::string job = kTrain + "--arch mlp --steps 1 --force --output " + file("run");
  const auto threads_with = [&](const std::string& ranks) {
    const Ended e = run(TANDEM_MPIRUN " --bind-to none " + ranks);
    EXPECT_EQ(0, e.status) << e.err;
    return read("run/args.json")["threads"].get<int>();
  };
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  EXPECT_EQ(cores, threads_with("-np 1 " + job));
  EXPECT_EQ(std::max(1, cores / 2), threads_with("-np 2 " + job));
  EXPECT_EQ(1, threads_with("-np 1 " + job + " : -np 1 env TANDEM_THREADS=1 " + job));
}

TEST_F(CliMpi, RefusesRanksThatWereNotRequested) {
  const Ended e = run(kTwoRanks + kTrain + "--steps 1 --parallel none");
  EXPECT_EQ(1, e.status);
  EXPECT_NE(std::string::npos, said(e).find("mpirun started 2 ranks, but --parallel none")) << e.err;
}

TEST_F(CliMpi, RefusesRanksWithDifferentArgumentsOrDataAndNamesThem) {
  const std::string job = kTrain + "--steps 2 --parallel data ";
  const std::string plan = write("plan.json", R"({"fusion_groups": [["head.weight", "head.bias"]]})");
  for (const auto& [difference, what] :
       std::vector<std::pair<std::string, std::string>>{{"--lr 0.5", "--lr"},
                                                        {"--seed 3", "--seed"},
                                                        {"--sched cosine", "--sched"},
                                                        {"--steps 7", "--steps"},
                                                        {"--arch mlp", "--arch"},
                                                        {"-b 32", "--batch-size"},
                                                        {"--plan " + plan, "--plan"},
                                                        {"--allreduce se", "--allreduce"},
                                                        {"--collective ring", "--collective"},
                                                        {"--link 1GB/s", "--link"},
                                                        {"--simulate", "--simulate"},
                                                        {"--trace trace.json", "--trace"},
                                                        {"--synthetic-test 70", "--synthetic-test"},
                                                        {"--synthetic-train 320", "--synthetic-train"}}) {
    SCOPED_TRACE(difference);
    const Ended e = run("timeout 30 " TANDEM_MPIRUN " -np 1 " + job + " : -np 1 " + job + difference);
    EXPECT_EQ(1, e.status);
    EXPECT_NE(std::string::npos, said(e).find("the ranks disagree on " + what + ": rank 1")) << e.err;
  }
}

// Before the first of them trains.
TEST_F(CliMpi, RefusesRanksThatSweepOverOtherBatchSizes) {
  const std::string job = TANDEM_BIN
      "/train_cifar --synthetic-train 300 --synthetic-test 60 --arch mlp --steps 2 --parallel data --sweep "
      "batch-size=50,";
  for (const char* other : {"100", "10,100"}) {
    const Ended e = run("timeout 30 " TANDEM_MPIRUN " -np 1 " + job + "20 : -np 1 " + job + other);
    EXPECT_EQ(1, e.status);
    EXPECT_NE(std::string::npos, said(e).find("the ranks disagree on --sweep, in its batch sizes: rank 1"))
        << e.err;
    EXPECT_EQ(std::string::npos, e.out.find("step 0")) << e.out;
  }
}

// The same arguments, but each rank reads its own machine's files.
TEST_F(CliMpi, RefusesRanksWhoseFilesDiffer) {
  write("plan0.json", R"({"fusion_groups": [["head.weight", "head.bias"]]})");
  write("plan1.json", R"({"fusion_groups": []})");
  const std::string on_rank = "sh -c 'mkdir -p " + file("") + "$OMPI_COMM_WORLD_RANK && cd " + file("") +
                              "$OMPI_COMM_WORLD_RANK && cp ../plan$OMPI_COMM_WORLD_RANK.json plan.json && ";
  const Ended e = run("timeout 30 " + kTwoRanks + on_rank + "exec " + kTrain +
                      "--steps 2 --parallel data --plan plan.json'");
  EXPECT_EQ(1, e.status);
  EXPECT_NE(std::string::npos, said(e).find("the ranks disagree on the Program: rank 1")) << e.err;
}

TEST_F(CliMpi, RanksWithOtherDirectoriesOrProcessorsAreRefused) {
  const Ended other = run("timeout 30 " + kTwoRanks + "sh -c 'exec " + kTrain + "--steps 2 --output " +
                          file("run") + "$OMPI_COMM_WORLD_RANK'");
  EXPECT_EQ(1, other.status);
  EXPECT_NE(std::string::npos, said(other).find("the ranks disagree on --output: rank 1")) << other.err;
  const Ended older = run("timeout 30 " + kTwoRanks +
                          "sh -c 'test $OMPI_COMM_WORLD_RANK = 0 || export ONEDNN_MAX_CPU_ISA=AVX2; exec " +
                          kTrain + "--steps 2'");
  EXPECT_EQ(1, older.status);
  EXPECT_NE(std::string::npos, said(older).find("the ranks disagree on the processor's instructions"))
      << older.err;
}

// Slurm's way: a signal that mpirun passes on to all ranks.
TEST_F(CliMpi, ASignalToAllRanksEndsThemAfterTheSameBatchWithACheckpoint) {
  for (const std::string parallel : {"data", "pipeline", "data --allreduce libra"}) {
    SCOPED_TRACE(parallel);
    const std::string name = parallel.substr(0, 4) + std::to_string(parallel.size()),
                      metrics = file(name + "/metrics.jsonl"),
                      job = kTwoRanks + kTrain + "--arch mlp --epochs 100000 --parallel " + parallel +
                            " --output " + file(name);
    const Ended e = run(job + " & until [ -s " + metrics + " ]; do sleep 0.05; done; kill -USR1 $!; wait $!");
    EXPECT_EQ(138, e.status) << e.err;
    EXPECT_EQ(1, count(e.err, "train_cifar: interrupted by SIGUSR1\n")) << e.err;
    const auto steps = static_cast<std::int64_t>(this->metrics(name).size());
    EXPECT_TRUE(std::filesystem::exists(file(name + "/checkpoints/step-" + std::to_string(steps)))) << e.out;
    const Ended rest = run(job + " --resume auto --steps " + std::to_string(steps + 4));
    EXPECT_EQ(0, rest.status) << rest.err;
    EXPECT_EQ(steps + 4, std::ssize(this->metrics(name)));
  }
}

TEST_F(CliMpi, SaysWhatFreesTheCoresThatMpirunsBindingLeavesIdle) {
  const bool has_more = std::thread::hardware_concurrency() > 1;
  for (const std::string bound : {"core", "none"}) {
    const Ended e = run(TANDEM_MPIRUN " --bind-to " + bound + " -np 1 " + kTrain + "--arch mlp --steps 1");
    EXPECT_EQ(0, e.status) << e.err;
    EXPECT_EQ(has_more && bound == "core",
              e.out.find("mpirun binds each rank to 1 core, so a rank computes with 1 thread") < e.out.size())
        << bound << ": " << e.out;
    EXPECT_EQ(std::string::npos, e.out.find('\x1b')) << "mpirun's output only looks like a terminal";
  }
}

TEST_F(CliMpi, BlamesNoBindingForCoresThatTheJobDoesNotHave) {
  cpu_set_t allowed;
  ASSERT_EQ(0, sched_getaffinity(0, sizeof allowed, &allowed));
  int first = 0;
  while (!CPU_ISSET(first, &allowed)) ++first;
  const Ended e = run(fmt::format("taskset -c {} ", first) + TANDEM_MPIRUN " --bind-to none -np 1 " + kTrain +
                      "--arch mlp --steps 1");
  EXPECT_EQ(0, e.status) << e.err;
  EXPECT_EQ(std::string::npos, e.out.find("mpirun binds")) << e.out;
}

// A container can have fewer cores than the machine.
TEST_F(CliMpi, RanksDivideTheCoresThatTheyShare) {
  cpu_set_t allowed;
  ASSERT_EQ(0, sched_getaffinity(0, sizeof allowed, &allowed));
  int first = 0;
  while (!CPU_ISSET(first, &allowed)) ++first;
  const std::string job = kTrain + "--arch mlp --steps 1";
  const Ended one = run(fmt::format("taskset -c {} ", first) + TANDEM_MPIRUN " --bind-to none -np 2 " + job);
  EXPECT_EQ(0, one.status) << one.err;
  EXPECT_EQ(1, count(one.out, "warning: 2 computing threads share 1 core")) << one.out;
  if (CPU_COUNT(&allowed) < 2) return;
  const Ended apart = run(TANDEM_MPIRUN " --bind-to core -np 2 " + job);
  EXPECT_EQ(0, apart.status) << apart.err;
  EXPECT_EQ(0, count(apart.out, "share")) << apart.out;
}

TEST_F(CliMpi, SimulatesMoreStagesThanRanks) {
  const Ended e = run(kTwoRanks + kTrain + "--steps 3 --parallel pipeline --stages 4 --simulate");
  EXPECT_EQ(0, e.status) << e.err;
  EXPECT_EQ(1, count(e.out, "predicted: ")) << e.out;
}

TEST_F(CliMpi, AnErrorOfAllRanksIsPrintedOnce) {
  const Ended e = run(kTwoRanks + kTrain + "--memory-budget 1");
  EXPECT_EQ(1, e.status);
  EXPECT_TRUE(std::regex_match(said(e), std::regex("train_cifar: the memory budget of 1 .*\n"))) << e.err;
}

TEST_F(CliMpi, RanksRollBackTogetherAndEquallyOften) {
  for (const std::string parallel : {"data", "pipeline", "pipeline --schedule dualpipe"}) {
    const Ended e =
        run(kTwoRanks + kTrain +
            "--lr 1e12 --steps 20 --on-nan rollback --max-rollbacks 2 --checkpoint-every 5 --force "
            "--output " +
            file("run") + " --parallel " + parallel);
    SCOPED_TRACE(parallel + ": " + e.out + e.err);
    EXPECT_EQ(1, e.status);
    EXPECT_EQ(
        2,
        count(e.out, "is not finite: the run goes back to step 0 and continues without it; the first value"));
    EXPECT_TRUE(std::regex_match(
        said(e),
        std::regex("train_cifar: step [0-9]+ is not finite, after 2 rollbacks; the first value .*\n")));
  }
}

TEST_F(CliMpi, OnlyOneRankPrints) {
  const Ended e =
      run(kTwoRanks + kTrain + "--arch mlp --steps 12 --threads 64 --parallel data --log-level debug");
  EXPECT_EQ(0, e.status) << e.err;
  for (const char* words : {"planned and proved", "computing threads share", "step 11 (12 of 12)  loss ",
                            "epoch 0  train loss ", "ms per step"})
    EXPECT_EQ(1, count(e.out, words)) << words << ": " << e.out;
}

// MPI waits for all ranks without limit.
TEST_F(CliMpi, EndsIfARankDoesNotComeAndNamesIt) {
  const std::string train = kTrain + "--arch mlp --steps 1 -b 66 --deadline 2 ";
  for (const std::string other : {"sleep 60", "true"}) {
    const auto begin = std::chrono::steady_clock::now();
    const Ended e = run(TANDEM_MPIRUN " -np 2 " + train + ": -np 1 " + other);
    SCOPED_TRACE(other + ": " + e.err);
    EXPECT_EQ(1, e.status);
    EXPECT_NE(
        std::string::npos,
        said(e).find("rank 0 has waited 1 s for all 3 ranks to meet: rank 2 has not come. Every rank must "
                     "run this program. The job ends after 2 s"));
    // If a program has ended without MPI, mpirun may end the job by itself, or lose the last line.
    const bool told = said(e).find("rank 0 has waited 2 s") != std::string::npos;
    EXPECT_TRUE(told || other == "true");
    EXPECT_EQ(told ? 2 : 1, count(said(e), "train_cifar: ")) << "one rank reports";
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
  }
}

TEST_F(CliMpi, WaitsForARankThatComesLate) {
  const std::string train = kTrain + "--arch mlp --steps 1 --deadline 20 ";
  const Ended e = run(TANDEM_MPIRUN " -np 1 " + train + ": -np 1 sh -c 'sleep 1; exec " + train + "'");
  EXPECT_EQ(0, e.status) << e.err;
  EXPECT_EQ("", said(e));
}

// Open MPI's mpirun passes Ctrl-C on as SIGTERM and ends with its own status.
TEST_F(CliMpi, AnInterruptedMpirunReportsOnceWhereTheRanksWere) {
  const Ended e = run(kTwoRanks + kTrain + "--epochs 100000 >" + file("out") + " & until grep -q step " +
                      file("out") + "; do sleep 0.1; done; kill -INT $!; wait $!");
  EXPECT_NE(0, e.status);
  EXPECT_EQ(1, count(e.err, "train_cifar: terminated\n")) << e.err;
  for (const std::string rank : {"0", "1"})
    EXPECT_TRUE(
        std::regex_search(e.err, std::regex("train_cifar: rank " + rank + " got SIGTERM; it was (in: rank " +
                                            rank + ": (evaluation )?batch .*|between two steps, and .*)\n")))
        << e.err;
}

TEST_F(CliMpi, AnInterruptedMpirunWithAnOutputEndsWithACheckpointAndNoReport) {
  const std::string metrics = file("run/metrics.jsonl");
  const Ended e = run(kTwoRanks + kTrain + "--epochs 100000 --output " + file("run") + " & until [ -s " +
                      metrics + " ]; do sleep 0.1; done; kill -INT $!; wait $!");
  EXPECT_NE(0, e.status);
  EXPECT_EQ(1, count(e.err, "train_cifar: terminated\n")) << e.err;
  EXPECT_EQ(std::string::npos, e.err.find("got SIGTERM")) << e.err;
  EXPECT_FALSE(std::filesystem::exists(file("run/collectives-0.jsonl")));
  EXPECT_TRUE(
      std::filesystem::exists(file("run/checkpoints/step-" + std::to_string(this->metrics().size()))));
}

// The killed rank prints nothing; mpirun names it, and the other rank reports the step at which it stopped.
TEST_F(CliMpi, AKilledRankEndsAllAndTheOthersReportWhereTheyWere) {
  const std::string metrics = file("run/metrics.jsonl"), pid = file("pid");
  const Ended e = run(kTwoRanks + "sh -c 'echo $$ >" + pid + ".$OMPI_COMM_WORLD_RANK; exec " + kTrain +
                      "--parallel pipeline --epochs 100000 --output " + file("run") + "' & until [ -s " +
                      metrics + " ]; do sleep 0.1; done; kill -KILL $(cat " + pid + ".0); wait $!");
  EXPECT_NE(0, e.status);
  EXPECT_TRUE(std::regex_search(e.err, std::regex("rank 0 .*signal 9"))) << e.err;
  EXPECT_TRUE(std::regex_search(
      e.err,
      std::regex(
          "train_cifar: rank 1 got SIGTERM; it was in: rank 1: (evaluation )?batch [0-9]+, instruction .+")))
      << e.err;
}

TEST_F(CliMpi, ASignalToOneRankEndsAllWithItsStatus) {
  for (const auto& [signal, word, status] : kEndings) {
    SCOPED_TRACE(signal);
    const std::string metrics = file(signal + "/metrics.jsonl"), pid = file("pid");
    const Ended e =
        run(kTwoRanks + "sh -c 'echo $$ >" + pid + ".$OMPI_COMM_WORLD_RANK; exec " + kTrain +
            "--parallel pipeline --epochs 100000 --output " + file(signal) + "' & until [ -s " + metrics +
            " ]; do sleep 0.1; done; kill -" + signal + " $(cat " + pid + ".0); wait $!");
    EXPECT_EQ(status, e.status) << e.err;
    EXPECT_NE(std::string::npos, said(e).find("train_cifar: " + word + "\n")) << e.err;
    EXPECT_EQ(1, count(e.err, "train_cifar: " + word + "\n")) << e.err;
  }
}

}  // namespace
}  // namespace tandem::testing
