// Resumed runs are bit-identical to uninterrupted runs, in every way of training.
#include "cli_resume.h"

namespace tandem::testing {
namespace {

struct Setting {
  const char* name;
  std::string flags;
  bool mpi = false;
};

class ResumeIn : public Resume, public ::testing::WithParamInterface<Setting> {};

TEST_P(ResumeIn, TenPlusTenStepsEqualTwentyBitwise) {
  const std::string command =
      (GetParam().mpi ? kMpi : "") + kShort + GetParam().flags + " --checkpoint-every 10 --output ";
  succeed(command + file("whole"));
  const Ended rest = succeed(command + file("rest") + " --resume " + checkpoint("whole", 10));
  EXPECT_NE(std::string::npos, rest.out.find("resumes at batch 10")) << rest.out;
  EXPECT_EQ(std::string::npos, rest.out.find("warning: losses")) << rest.out;
  ASSERT_EQ(10u, losses("rest").size());
  EXPECT_EQ(losses("whole", 10), losses("rest"));
  expect_same_checkpoint(checkpoint("whole", 20), checkpoint("rest", 20));
  EXPECT_EQ(read("whole/summary.json").at("test_accuracy"), read("rest/summary.json").at("test_accuracy"));
  EXPECT_EQ(read("whole/summary.json").at("train_loss"), read("rest/summary.json").at("train_loss"))
      << "the loss is that of the whole last epoch";
}

std::vector<Setting> settings() {
  std::vector<Setting> all{
      {"Sgd", "--arch convnet"},
      {"Nesterov",
       "--arch convnet --nesterov --wd 0.01 --no-bias-decay --clip-grad 1 --sched linear --warmup-epochs 1"},
      {"AdamW", "--arch mlp-residual --opt adamw --lr 0.003 --wd 0.05 --sched cosine"},
      {"AdamF64", "--arch mlp --opt adam --lr 0.003 --dtype f64"},
      {"Bf16", "--arch convnet --amp-dtype bf16 --loss-scale 1024 --opt adamw --lr 0.003"},
      {"Augmented", "--arch mlp -b 60 --augment pad-crop,flip --workers 1"},
      {"Mixup", "--arch convnet -b 60 --mixup 0.4 --workers 1 --parallel data --ranks 2"},
      {"DataParallel", "--arch convnet --parallel data --ranks 2 --microbatches 2"},
      {"DataParallelAdamW", "--arch convnet --parallel data --ranks 2 --opt adamw --lr 0.003"},
      {"OneFOneB", "--arch convnet --stages 2 --microbatches 4"},
      {"GPipe", "--arch convnet --stages 2 --schedule gpipe --microbatches 4"},
      {"Accumulation", "--arch convnet --microbatches 4 --workers 2 --augment pad-crop,flip"},
      {"DualPipe", "--arch mlp-residual --stages 2 --schedule dualpipe --momentum 0"},
      {"PipeDream", "--arch mlp-residual --stages 2 --schedule pipedream --opt adamw --lr 0.001"},
      {"Both", "--arch convnet --parallel pipeline --stages 2 --ranks 2 --schedule gpipe --microbatches 2"},
      {"TwoModels", "--arch convnet --lr 0.05,0.02 --seed 1,2"},
      {"TwoModelsAdamW", "--arch mlp --lr 0.003,0.002 --seed 1,2 --opt adamw --stages 2"},
  };
  if (TANDEM_HAS_MPIRUN) {
    all.push_back({"MpiData", "--arch convnet --parallel data", true});
    all.push_back(
        {"MpiOneFOneB", "--arch convnet --parallel pipeline --microbatches 4 --opt adamw --lr 0.003", true});
    all.push_back({"MpiDualPipe", "--arch mlp --parallel pipeline --schedule dualpipe --momentum 0", true});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Settings, ResumeIn, ::testing::ValuesIn(settings()),
                         [](const auto& info) { return std::string(info.param.name); });

// Batch 14 is the first of the third epoch: running statistics, orders, and sums of losses start there as in
// the uninterrupted run.
TEST_F(Resume, FromTheEndOfAnEpochIsBitIdentical) {
  for (const std::string flags :
       {"--arch convnet", "--arch mlp --augment pad-crop,flip --workers 2 --opt adamw --lr 0.003",
        "--arch mlp --stages 2 --schedule pipedream", "--arch convnet --parallel data --ranks 2"}) {
    SCOPED_TRACE(flags);
    const std::string command = kShort + flags + " --force --checkpoint-every 7 --output ";
    succeed(command + file("whole"));
    succeed(command + file("rest") + " --resume " + checkpoint("whole", 14));
    EXPECT_EQ(losses("whole", 14), losses("rest"));
    expect_same_checkpoint(checkpoint("whole", 20), checkpoint("rest", 20));
    EXPECT_EQ(read("whole/summary.json").at("train_loss"), read("rest/summary.json").at("train_loss"));
  }
}

// A checkpoint is of models, and not of how they are divided and what is swapped.
TEST_F(Resume, UnderAnyPartitionPolicyAndBudget) {
  const std::string command =
      kShort + "--synthetic-train 112 -b 16 --arch convnet --models 3 --checkpoint-every 10 --output ";
  succeed(command + file("whole") + " --arrays 3");
  const std::string others[] = {
      "--arrays 2,1 --array-ring",
      "--arrays 1,1,1 --array-lanes 2",
      "--turns 2,1",
      "--arrays 3 --memory-plan checkpoint",
      "--arrays 2,1 --array-ring --memory-plan mu-two --copy-link 8GB/s --memory-budget 5.5MB",
      "--arrays 1,1,1 --array-ring --memory-plan vdnn --copy-link 8GB/s",
      "--memory-plan hfta-capuchin --memory-budget 4MB",
  };
  int i = 0;
  for (const std::string& other : others) {
    SCOPED_TRACE(other);
    const std::string rest = "rest-" + std::to_string(i++);
    succeed(command + file(rest) + " " + other + " --resume " + checkpoint("whole", 10));
    EXPECT_EQ(losses("whole", 10), losses(rest));
    expect_same_checkpoint(checkpoint("whole", 20), checkpoint(rest, 20));
  }
  // Saved under a plan of a ring, and resumed without.
  succeed(command + file("planned") + " --steps 10 " + others[4]);
  succeed(command + file("back") + " --arrays 3 --resume " + checkpoint("planned", 10));
  expect_same_checkpoint(checkpoint("whole", 20), checkpoint("back", 20));
}

TEST_F(Resume, TheSameCommandGivesTheSameBitsTenTimes) {
  const std::string command =
      kShort + "--arch convnet --parallel data --ranks 2 --workers 2 --augment pad-crop,flip " +
      "--force --checkpoint-every 20 --output ";
  succeed(command + file("first"));
  for (int i = 1; i < 10; ++i) {
    succeed(command + file("again"));
    EXPECT_EQ(losses("first"), losses("again"));
    expect_same_checkpoint(checkpoint("first", 20), checkpoint("again", 20));
  }
}

}  // namespace
}  // namespace tandem::testing
