// The programs as a user sees them: data that are augmented, loaded ahead, truncated, damaged.
#include <sched.h>

#include <cmath>
#include <fstream>
#include <regex>

#include <fmt/format.h>

#include "cli.h"

namespace tandem::testing {
namespace {

using nlohmann::json;

std::string small() { return kTrain + "--arch mlp --threads 1 "; }

class CliData : public Cli {
 protected:
  /// The losses of a run, which must succeed.
  std::vector<double> losses(const std::string& command) const {
    const Ended e = run(command + " --force --output " + file("run"));
    EXPECT_EQ(0, e.status) << command << ": " << e.err;
    std::vector<double> result;
    for (const json& m : metrics()) result.push_back(m.at("loss"));
    return result;
  }
  void expect_near(const std::vector<double>& a, const std::vector<double>& b, double tolerance) const {
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], tolerance) << "step " << i;
  }
  /// Writes drawn images and replaces the label of some images of the first file.
  std::string damaged_data(const std::vector<int>& images) const {
    const std::string data = file("data");
    std::filesystem::remove_all(data);
    EXPECT_TRUE(succeeds(kTandem + "make-data cifar10 " + data + " --train 200 --test 20"));
    std::fstream records(data + "/data_batch_1.bin", std::ios::in | std::ios::out | std::ios::binary);
    for (const int i : images) records.seekp(i * 3073).put(static_cast<char>(77));
    return TANDEM_BIN "/train_cifar --arch mlp --threads 1 -b 10 --epochs 1 --data " + data + " ";
  }
};

TEST_F(CliData, MixupTrainsOnMixedImagesAndTestsOnOriginalOnes) {
  const auto plain = losses(small() + "--epochs 1"), mixed = losses(small() + "--epochs 1 --mixup 0.5");
  ASSERT_EQ(plain.size(), mixed.size());
  EXPECT_NE(plain, mixed);
  expect_near(plain, losses(small() + "--epochs 1 --mixup 1e-6"), 1e-3);  // almost all weight on one image
  expect_near(mixed, losses(small() + "--epochs 1 --mixup 0.5 --parallel data --ranks 2 --microbatches 2"),
              1e-4);
  expect_refused(small() + "--mixup 5", {"--mixup 5: must be at most 4"});
}

TEST_F(CliData, WorkersChangeNoLoss) {
  for (const std::string job :
       {"", "--augment pad-crop,flip,cutout", "--parallel data --ranks 2 --microbatches 2",
        "--parallel pipeline --stages 2 --schedule pipedream --momentum 0 -b 60"}) {
    const auto without = losses(small() + "--epochs 2 " + job);
    EXPECT_GE(without.size(), 20u);
    EXPECT_EQ(without, losses(small() + "--epochs 2 " + job + " -j 1")) << job;
    EXPECT_EQ(without, losses(small() + "--epochs 2 " + job + " --workers 3")) << job;
  }
}

TEST_F(CliData, AugmentationDependsOnlyOnTheGlobalBatch) {
  const std::string job = small() + "--dtype f64 --steps 13 --augment flip,pad-crop ";
  const auto one = losses(job);
  EXPECT_NE(one, losses(small() + "--dtype f64 --steps 13"));
  EXPECT_NE(one, losses(small() + "--dtype f64 --steps 13 --augment flip"));
  EXPECT_EQ(one, losses(small() + "--dtype f64 --steps 13 --augment pad-crop,flip"));
  expect_near(one, losses(job + "--parallel data --ranks 2 -j 2"), 1e-11);
  expect_near(one, losses(job + "--microbatches 4"), 1e-11);
}

// 640 images are ten batches of 60, and one of 40.
TEST_F(CliData, AShortLastBatchIsABatchOfItsOwn) {
  const std::string job = small() + "--dtype f64 --epochs 2 -b 60 ";
  const auto dropped = losses(job + "--drop-last"), kept = losses(job);
  EXPECT_EQ(kept, losses(job + "--no-drop-last"));
  ASSERT_EQ(20u, dropped.size());
  ASSERT_EQ(22u, kept.size());
  EXPECT_TRUE(std::equal(dropped.begin(), dropped.begin() + 10, kept.begin()));
  EXPECT_NE(dropped[10], kept[11]) << "the short batch changes the weights";
  double sum = 40 * kept[21];
  for (int i = 11; i < 21; ++i) sum += 60 * kept[static_cast<std::size_t>(i)];
  EXPECT_NEAR(sum / 640, read("run/summary.json").at("train_loss").get<double>(), 1e-12)
      << "it is the mean over the epoch";
  expect_near(kept, losses(job + "--parallel data --ranks 2 --microbatches 2"), 1e-11);
  expect_near(kept, losses(job + "--parallel pipeline --stages 2"), 1e-11);
  expect_refused(job + "--parallel data --ranks 3",
                 {"640 images", "last batch of 40", "3 ranks", "--batch-size"});
}

TEST_F(CliData, NamesTheModuleOfANonFiniteLossInAShortBatch) {
  expect_refused(kTrain + "-b 639 --arch mlp --lr 1e30 --epochs 1", {"not finite", "step 1", "module"});
}

TEST_F(CliData, BadSamplesEndTheRunOrAreSkippedAndCounted) {
  const std::string job = damaged_data({3, 8});
  expect_refused(job, {"data_batch_1.bin", "record 3", "offset 9219", "label 77", "0 … 9"});
  expect_refused(job + "--bad-samples skip:1", {"data_batch_1.bin", "record 8", "offset 24584", "number 2"});
  const Ended e = run(job + "--bad-samples skip:2 --output " + file("run"));
  EXPECT_EQ(0, e.status) << e.err;
  EXPECT_TRUE(std::regex_search(
      e.out, std::regex("warning: 2 images of the training set left out, the first of them: "
                        ".*data_batch_1.bin: record 3, offset 9219")))
      << e.out;
  EXPECT_EQ(std::string::npos, e.out.find("test set left out"));
  EXPECT_NE(std::string::npos, e.out.find("20 of 20")) << "198 images in batches of 10: " << e.out;
}

TEST_F(CliData, RefusesInvalidDataFlags) {
  expect_refused(kTrain + "--workers -1", {"--workers -1", "at least 0"});
  expect_refused(kTrain + "-j 1000000", {"--workers 1000000", "at most 128"});
  expect_refused(kTrain + "--num-workers 2", {"unknown flag '--num-workers'", "perhaps --workers"});
  expect_refused(kTrain + "--augment crop", {"--augment: 'crop'", "pad-crop, flip, cutout"});
  expect_refused(kTrain + "--augment flip,", {"--augment: 'flip,'", "''"});
  expect_refused(kTrain + "--augment flip,flip", {"'flip' is given twice"});
  expect_refused(kTrain + "--augment none,flip", {"'none' is unknown or cannot be combined"});
  expect_refused(kTrain + "--bad-samples skip", {"--bad-samples: 'skip'", "skip:N"});
  expect_refused(kTrain + "--bad-samples skip:1", {"--bad-samples", "no effect", "--data"});
  expect_refused(kTrain + "--simulate -j 1", {"--workers", "no effect", "--simulate"});
  expect_refused(kTrain + "--simulate --drop-last", {"--drop-last", "no effect", "--simulate"});
}

TEST_F(CliData, ReportsWhenThreadsShareCores) {
  for (const std::string wrong : {"abc", "-1", "0", "2x", "1e3", "1025", "''"})
    expect_refused("TANDEM_THREADS=" + wrong + " " + kTrain + "--arch mlp --steps 2",
                   {"TANDEM_THREADS", "a number from 1 to 1024"});
  const std::string two = "TANDEM_THREADS=2 " + kTrain + "--arch mlp --steps 2 ";
  EXPECT_EQ(std::string::npos, run(two).out.find("share"));
  EXPECT_EQ(std::string::npos, run(two + "-j 1").out.find("share")) << "the team leaves a core to the worker";
  EXPECT_NE(std::string::npos,
            run(two + "-j 1 --threads 2")
                .out.find("warning: 2 computing threads and 1 loading thread share 2 cores"));
  EXPECT_NE(std::string::npos,
            run(two + "-j 2").out.find("warning: 1 computing thread and 2 loading threads share 2 cores"));
}

TEST_F(CliData, ATeamIsNoLargerThanTheCoresItMayUseUnlessAskedFor) {
  cpu_set_t allowed;
  ASSERT_EQ(0, sched_getaffinity(0, sizeof allowed, &allowed));
  int first = 0;
  while (!CPU_ISSET(first, &allowed)) ++first;
  const std::string job = fmt::format("taskset -c {} ", first) + kTrain + "--arch mlp --steps 2 --output ";
  const Ended one = run(job + file("one"));
  ASSERT_EQ(0, one.status) << one.err;
  EXPECT_EQ(1, read("one/args.json").at("threads"));
  EXPECT_EQ(std::string::npos, one.out.find("warning")) << one.out;
  const Ended two = run(job + file("two") + " --threads 2");
  ASSERT_EQ(0, two.status) << two.err;
  EXPECT_EQ(2, read("two/args.json").at("threads"));
  EXPECT_NE(std::string::npos, two.out.find("warning: 2 computing threads share 1 core\n")) << two.out;
}

TEST_F(CliData, ABoundTeamUsesAsManyCoresAsAFreeOne) {
  const std::string job = kTrain + "--arch mlp --steps 2 --output ";
  ASSERT_TRUE(succeeds(job + file("free")));
  ASSERT_TRUE(succeeds("OMP_PROC_BIND=true " + job + file("bound")));
  EXPECT_EQ(read("free/args.json").at("threads"), read("bound/args.json").at("threads"));
}

// With a smaller team than they were prepared for, kernels compute nonsense or wait forever.
TEST_F(CliData, TeamsHaveTheRequestedSizeUnderAnyOpenMPSettings) {
  const auto loss = [&](const std::string& environment, const std::string& threads, const std::string& name) {
    const auto o = run(environment + "timeout -s KILL 100 " + kTrain + "--arch convnet --steps 2" + threads +
                       " --output " + file(name));
    EXPECT_EQ(0, o.status) << o.err;
    return read(name + "/summary.json").at("train_loss");
  };
  const auto one = loss("", " --threads 1", "one"), two = loss("", " --threads 2", "two");
  EXPECT_EQ(two, loss("OMP_DYNAMIC=true ", " --threads 2", "dynamic"));
  for (const std::string limit : {"OMP_THREAD_LIMIT=1 ", "OMP_MAX_ACTIVE_LEVELS=0 "}) {
    EXPECT_EQ(one, loss(limit, "", limit.substr(0, 10)));
    expect_refused(limit + "timeout -s KILL 100 " + kTrain + "--arch convnet --steps 2 --threads 2",
                   {"a team of 2", "OMP_THREAD_LIMIT", "OMP_MAX_ACTIVE_LEVELS"});
  }
}

}  // namespace
}  // namespace tandem::testing
