// Sweeps: models side by side, each of which is a run of its own.
#include <cmath>
#include <regex>
#include <set>

#include <fmt/format.h>

#include "cli_resume.h"

namespace tandem::testing {
namespace {

class CliSweep : public Resume {
 protected:
  // The command that a sweep's ranking gives for a model, which is below the model's line.
  static std::string command_of(const Ended& sweep, int model) {
    const std::size_t at = sweep.out.find(fmt::format("model {}  test", model));
    EXPECT_NE(std::string::npos, at) << sweep.out;
    const std::size_t begin = sweep.out.find("train_cifar", at);
    return fmt::format("{}/{}", TANDEM_BIN, sweep.out.substr(begin, sweep.out.find('\n', begin) - begin));
  }
  std::string base() const {
    return fmt::format("{}/train_cifar --synthetic-train 300 --synthetic-test 100 --threads 1 ", TANDEM_BIN);
  }
  // Each model's directory must be what the run alone leaves.
  void expect_single_runs(const std::string& flags, int models, int steps) {
    const Ended sweep = succeed(base() + flags + " --output " + file("sweep"));
    for (int m = 0; m < models; ++m) {
      const std::string alone = fmt::format("alone-{}", m), own = fmt::format("sweep/model-{}", m);
      SCOPED_TRACE(command_of(sweep, m));
      succeed(command_of(sweep, m) + " --output " + file(alone));
      EXPECT_EQ(losses(alone), losses(own));
      expect_same_checkpoint(checkpoint(alone, steps), checkpoint(own, steps));
      for (const char* key : {"test_accuracy", "train_loss"})
        EXPECT_EQ(read(alone + "/summary.json").at(key), read(own + "/summary.json").at(key)) << key;
    }
  }
};

TEST_F(CliSweep, EachModelIsTheRunOfItsCommand) {
  expect_single_runs(
      "--arch mlp-residual -b 50 --epochs 2 --augment flip "
      "--sweep 'lr=0.05,0.02;momentum=0,0.9;wd=0,1e-3' --no-bias-decay",
      8, 12);
}

TEST_F(CliSweep, OfEveryKey) {
  expect_single_runs(
      "--arch convnet -b 50 --steps 8 --sweep "
      "'sched=cosine,linear;label-smoothing=0.1;clip-grad=0,0.5;init-gain=0.7;data-seed=3,4;seed=5;warmup-epochs=1'",
      8, 8);
}

TEST_F(CliSweep, OfMoreModelsThanCombinationsHasSeedsThatCountOn) {
  expect_single_runs("--arch mlp -b 50 --steps 4 --seed 5 --models 6 --sweep 'lr=0.05,0.02'", 6, 4);
  const auto args = [&](int m) { return read(fmt::format("sweep/model-{}/args.json", m)); };
  for (int m = 0; m < 6; ++m) {
    EXPECT_EQ(m % 2 == 0 ? 0.05 : 0.02, args(m).at("lr").at(0)) << m;
    EXPECT_EQ(5 + m / 2, args(m).at("seed").at(0)) << m;
  }
  const Ended given =
      succeed(base() + "--arch mlp -b 50 --steps 2 --sweep 'lr=0.05,0.02' --models 4 --seed 9,8,7,6");
  EXPECT_NE(std::string::npos, command_of(given, 3).find(" --seed 6 ")) << command_of(given, 3);
}

TEST_F(CliSweep, OfCosinesWithAWarmUp) {
  expect_single_runs(
      "--arch mlp -b 50 --steps 9 --sweep 'sched=cosine;min-lr=0,0.02,0.03;warmup-epochs=1;warmup-lr=0.01'",
      3, 9);
}
TEST_F(CliSweep, OfStepsAndClippedValues) {
  expect_single_runs(
      "--arch mlp -b 50 --steps 9 --sweep 'sched=step;decay-epochs=1;decay-rate=0.5,0.3,0.2,0.1,0.05;clip-value=0.02'",
      5, 9);
}
TEST_F(CliSweep, OfRulesOfMomentum) {
  expect_single_runs("--arch mlp -b 50 --steps 5 --sweep 'sgd-rule=momentum,ema,raw+ema'", 3, 5);
  fs::remove_all(file("sweep"));
  for (const char* alone : {"alone-0", "alone-1", "alone-2"}) fs::remove_all(file(alone));
  expect_single_runs("--arch mlp -b 50 --steps 5 --sweep 'nesterov=true,false;clip-value=0.02,0.1'", 4, 5);
}

TEST_F(CliSweep, OfOptimizersWithTheirOwnRates) {
  expect_single_runs("--arch mlp -b 50 --steps 8 --sweep 'opt=sgd,adamw;wd=0,1e-3'", 4, 8);
  const Ended sweep = succeed(base() + "--arch mlp -b 50 --steps 2 --sweep 'wd=0,1e-3;opt=adam,sgd'");
  EXPECT_NE(std::string::npos, (sweep.out + sweep.err).find("are in arrays of their own: 1, 1, 1, 1"))
      << sweep.err;
}

TEST_F(CliSweep, OfManyModelsPrintsTheLeastAndTheMost) {
  const Ended sweep = succeed(base() + "--arch mlp -b 50 --epochs 2 --models 13");
  const std::string numbers = "test accuracy [0-9.]+ to [0-9.]+ % of 13 models";
  EXPECT_TRUE(std::regex_search(
      sweep.out, std::regex("epoch 0  train loss [0-9.]+ to [0-9.]+ of 13 models  " + numbers + "\n")))
      << sweep.out;
  EXPECT_TRUE(std::regex_search(sweep.out,
                                std::regex("\n" + numbers + "  train loss [0-9.]+ to [0-9.]+ of 13 models")))
      << sweep.out;
  const Ended half = succeed(base() + "--arch mlp -b 50 --steps 3 --sweep 'lr=1e18,0.01;seed=1,2,3,4,5,6,7'");
  EXPECT_NE(std::string::npos, half.out.find(" % of 7 of 14 models")) << half.out;
}

TEST_F(CliSweep, TakesTurnsByEpoch) {
  expect_single_runs(
      "--arch mlp-residual -b 50 --epochs 3 --checkpoint-every 4 --turns 1,2,1 "
      "--sweep 'lr=0.05,0.02;momentum=0.9,0'",
      4, 18);
  const auto lines = metrics("sweep");
  ASSERT_EQ(lines.size(), 18u);
  for (std::size_t step = 0; step < lines.size(); ++step) {
    EXPECT_EQ(lines[step].at("step"), step);
    for (const auto& loss : lines[step].at("loss")) EXPECT_TRUE(loss.is_number()) << lines[step];
  }
  const std::string train = base() + "--arch mlp -b 50 --models 4 --steps 8 ";
  expect_refused(train + "--turns 2,1", {"--turns", "3 models together", "--models is 4"});
  expect_refused(train + "--turns 2,2 --ranks 2", {"turns of 2, 2 models need one rank"});
  expect_refused(train + "--turns 2,2 --arrays 1,2,1", {"each array must lie in one turn"});
  expect_refused(train + "--turns 2,2 --on-nan skip", {"no turn can go back"});
}

// A budget that two models of four fit into, with a memory plan. μ-TWO's own policy takes pairs, where one
// model alone would need no plan.
TEST_F(CliSweep, ABudgetMakesModelsTakeTurnsAndItsPlanRepeatsThem) {
  const std::string train = TANDEM_BIN
      "/train_cifar --arch resnet20 -b 16 --synthetic-train 32 --synthetic-test 16 --epochs 2 --threads 1 --models 4 ";
  const Ended planned = succeed(
      train + "--memory-budget 16MB --memory-plan mu-two --log-level debug --output " + file("planned"));
  EXPECT_NE(std::string::npos, (planned.out + planned.err).find("in turns of arrays: (1, 1) (1, 1)"))
      << planned.err;
  EXPECT_EQ(std::string::npos, (planned.out + planned.err).find("an array of 1 model does not fit"))
      << "it is measured\n"
      << planned.err;
  EXPECT_EQ(read("planned/plan.json").at("turns"), (std::vector{2, 2}));
  EXPECT_LE(read("planned/summary.json").at("peak_bytes"), 16'000'000);
  succeed(train + "--plan " + file("planned/plan.json") + " --output " + file("again"));
  expect_same_checkpoint(checkpoint("planned", 4), checkpoint("again", 4));
  succeed(train + "--output " + file("at-once"));
  expect_same_checkpoint(checkpoint("planned", 4), checkpoint("at-once", 4));
}

// A repeated plan is for all models. Once one has left, the others' step is planned again, as large at most.
TEST_F(CliSweep, ModelsLeaveARepeatedMemoryPlan) {
  const std::string train = TANDEM_BIN
      "/train_cifar --arch resnet20 -b 16 --synthetic-train 40 --synthetic-test 16 --epochs 4 --threads 1 "
      "--sweep lr=0.05,1e30,0.02 ";
  const Ended planned =
      succeed(train + "--memory-budget 21MB --memory-plan mu-two --output " + file("planned"));
  EXPECT_NE(std::string::npos, (planned.out + planned.err).find("model 1 has diverged")) << planned.err;
  succeed(train + "--plan " + file("planned/plan.json") + " --output " + file("again"));
  EXPECT_LE(read("again/summary.json").at("peak_bytes"), 21'000'000);
  for (const std::string model : {"model-0", "model-2"})
    expect_same_checkpoint(checkpoint("planned/" + model, 12), checkpoint("again/" + model, 12));
}

TEST_F(CliSweep, OfAdamsBetasAndDrawnRates) {
  expect_single_runs(
      "--arch mlp -b 50 --steps 8 --opt adamw --models 4 --sweep "
      "'lr~log(1e-4,1e-2);betas=0.9:0.99,0.8:0.999;wd~uniform(0,0.1)'",
      4, 8);
}

TEST_F(CliSweep, GoesOnWithOneModelAlone) {
  const std::string flags = "--arch convnet -b 50 --steps 12 --sweep 'lr=0.05,0.02;momentum=0.9,0' ";
  succeed(base() + flags + "--checkpoint-every 6 --output " + file("sweep"));
  const Ended sweep = succeed(base() + flags);
  succeed(command_of(sweep, 3) + " --output " + file("rest") + " --resume " +
          file("sweep/model-3/checkpoints/step-6"));
  EXPECT_EQ(losses("sweep/model-3", 6), losses("rest"));
  expect_same_checkpoint(checkpoint("sweep/model-3", 12), checkpoint("rest", 12));
}

// A kill can come when the models have saved a step and the sweep has not.
TEST_F(CliSweep, ModelsGoBackWithTheirSweep) {
  const std::string job = base() +
                          "--arch mlp --models 2 --sweep lr=0.1,0.05 --checkpoint-every 4 --resume auto " +
                          "--output " + file("sweep") + " --steps ";
  succeed(job + "8");
  fs::remove_all(file("sweep/checkpoints/step-8"));
  fs::remove(file("sweep/summary.json"));
  const Ended e = succeed(job + "6");
  EXPECT_EQ("", e.err);
  for (const char* model : {"sweep/model-0", "sweep/model-1"}) {
    EXPECT_TRUE(fs::exists(checkpoint(model, 6))) << model;
    EXPECT_FALSE(fs::exists(checkpoint(model, 8))) << model;
  }
}

TEST_F(CliSweep, ADivergedModelIsMaskedAndTheOthersGoOn) {
  const std::string flags = "--arch mlp -b 50 --steps 12 --sweep ";
  const Ended sweep = succeed(base() + flags + "'lr=0.05,1e30,0.02' --output " + file("sweep"));
  EXPECT_NE(std::string::npos, (sweep.out + sweep.err).find("model 1 has diverged at step"))
      << sweep.out << sweep.err;
  EXPECT_NE(std::string::npos, sweep.out.find("3. model 1")) << sweep.out;
  for (const int m : {0, 2}) {
    const std::string alone = fmt::format("alone-{}", m);
    succeed(command_of(sweep, m) + " --output " + file(alone));
    expect_same_checkpoint(checkpoint(alone, 12), checkpoint(fmt::format("sweep/model-{}", m), 12));
  }
  const Ended none = run(base() + flags + "'lr=1e30,2e30'");
  EXPECT_EQ(1, none.status);
  EXPECT_NE(std::string::npos, none.err.find("no other model trains")) << none.err;
}

TEST_F(CliSweep, PrunedModelsLeaveTheOthersBits) {
  const std::string flags =
      "--arch mlp-residual -b 50 --epochs 5 --prune median --sweep 'lr=0.05,1e-5,0.04,2e-5' --output ";
  const Ended sweep = succeed(base() + flags + file("sweep"));
  EXPECT_NE(std::string::npos, (sweep.out + sweep.err).find("is pruned after")) << sweep.out << sweep.err;
  succeed(command_of(sweep, 0) + " --output " + file("alone"));
  EXPECT_EQ(losses("alone"), losses("sweep/model-0"));
  expect_same_checkpoint(checkpoint("alone", 30), checkpoint("sweep/model-0", 30));
  EXPECT_TRUE(std::regex_search(sweep.out, std::regex(R"(losses \d\.\d{4}, -, \d)"))) << "it has no loss";
  // A pruned model has the checkpoint of its last batch, and goes on from there alone.
  const std::vector<nlohmann::json> pruned = metrics("sweep/model-1");
  ASSERT_LT(pruned.size(), 30u);
  succeed(command_of(sweep, 1) + " --output " + file("rest") + " --resume " +
          checkpoint("sweep/model-1", static_cast<int>(pruned.size())));
  succeed(command_of(sweep, 1) + " --output " + file("whole"));
  expect_same_checkpoint(checkpoint("whole", 30), checkpoint("rest", 30));
}

TEST_F(CliSweep, ResumesWithPrunedModels) {
  const std::string flags =
      "--arch mlp-residual -b 50 --epochs 5 --prune median --sweep 'lr=0.05,1e-5,0.04,2e-5' --checkpoint-every 20 ";
  succeed(base() + flags + "--output " + file("whole"));
  const Ended rest =
      succeed(base() + flags + "--output " + file("rest") + " --resume " + checkpoint("whole", 20));
  expect_same_checkpoint(checkpoint("whole", 30), checkpoint("rest", 30));
  EXPECT_TRUE(metrics("rest/model-1").empty()) << "it had been pruned";
  EXPECT_FALSE(fs::exists(checkpoint("rest/model-1", 30)));
  EXPECT_NE(std::string::npos, rest.out.find("pruned after")) << rest.out;
}

// A rate at which the outputs, but not yet the losses, are infinite when the first epoch is evaluated.
TEST_F(CliSweep, AModelWithoutFiniteOutputsStopsInEvaluation) {
  const std::string flags = "--arch mlp-residual -b 50 --steps 1 --sweep 'lr=123456,0.02,1e30'";
  const Ended sweep = succeed(base() + flags);
  EXPECT_NE(std::string::npos, (sweep.out + sweep.err).find("model 2 has diverged"))
      << sweep.out << sweep.err;
  EXPECT_NE(std::string::npos, sweep.out.find("1. model 1")) << sweep.out;
}

TEST_F(CliSweep, ItsCommandsAreReadBackByAShell) {
  const std::string odd = file("it's $HOME [1] #");
  fs::create_directory(odd);
  succeed(kTandem + "make-data cifar10 \"" + file("data") + "\" --train 300 --test 20");
  fs::rename(file("data"), odd + "/data");
  const Ended sweep = succeed(TANDEM_BIN
                              "/train_cifar --arch mlp --threads 1 --steps 2 --models 2 --sweep lr=0.1,0.05 "
                              "--data '" +
                              file("it'\\''s $HOME [1] #") + "/data'");
  succeed(command_of(sweep, 1) + " --output " + file("alone"));
  EXPECT_EQ(odd + "/data", read("alone/args.json").at("data"));
}

TEST_F(CliSweep, DrawsADifferentValueForEachModel) {
  const Ended sweep = succeed(base() + "--arch mlp --steps 1 -b 50 --models 6 --sweep 'lr~log(1e-4,1e-1)'");
  std::set<std::string> rates;
  for (int m = 0; m < 6; ++m) {
    const std::string command = command_of(sweep, m);
    const std::string rate = command.substr(command.find("--lr ") + 5);
    rates.insert(rate);
    EXPECT_GE(std::stod(rate), 1e-4);
    EXPECT_LE(std::stod(rate), 1e-1);
  }
  EXPECT_EQ(6u, rates.size());
}

TEST_F(CliSweep, SaysWhichModelsRepeatOthers) {
  const std::string sweep =
      base() + "--arch mlp --steps 1 -b 50 --sweep 'opt=sgd,adam;betas=0.9:0.99,0.8:0.999'";
  const Ended repeated = succeed(sweep);
  const std::string said = repeated.out + repeated.err;
  EXPECT_NE(std::string::npos, said.find("model 1 repeats 0\n")) << said;
  const Ended different = succeed(base() + "--arch mlp --steps 1 -b 50 --sweep 'opt=sgd,adam;wd=0,0.1'");
  EXPECT_EQ(std::string::npos, (different.out + different.err).find("repeats")) << different.err;
}

TEST_F(CliSweep, DrawsFromNarrowRangesAndWholeNumbers) {
  const Ended sweep = succeed(
      base() +
      "--arch mlp --steps 1 -b 50 --models 4 --sweep 'lr~uniform(0.10001,0.10004);seed~uniform(0,1000)'");
  std::set<std::string> rates, seeds;
  for (int m = 0; m < 4; ++m) {
    std::istringstream words(command_of(sweep, m));
    for (std::string word, before; words >> word; before = word) {
      if (before == "--lr") rates.insert(word);
      if (before == "--seed") seeds.insert(word);
    }
  }
  EXPECT_EQ(4u, rates.size());
  EXPECT_EQ(4u, seeds.size());
  for (const std::string& rate : rates) {
    EXPECT_GT(std::stod(rate), 0.10001);
    EXPECT_LT(std::stod(rate), 0.10004);
  }
  for (const std::string& seed : seeds) EXPECT_EQ(std::string::npos, seed.find('.')) << seed;
}

TEST_F(CliSweep, DropoutOfZeroIsASingleRunsToo) {
  expect_single_runs("--arch vgg16 -b 10 --steps 2 --sweep 'dropout=0,0.5'", 2, 2);
}

// Each model's config.toml is the run alone; runs of others stay, and files of others too.
TEST_F(CliSweep, LeavesWhatIsNotItsOwn) {
  const std::string train = base() + "--arch mlp -b 50 --steps 2 ";
  succeed(train + "--output " + file("sweep/model-0"));
  expect_refused(train + "--sweep 'lr=0.1,0.2' --output " + file("sweep"),
                 {"--output", "model-0", "holds a run already"});
  EXPECT_FALSE(fs::exists(file("sweep/args.json")));
  write("sweep/model-0/notes.txt", "mine");
  succeed(train + "--force --sweep 'lr=0.01,0.02' --output " + file("sweep"));
  succeed(train + "--force --sweep 'lr=0.01,0.02' --output " + file("sweep"));
  EXPECT_EQ("mine", read_file(file("sweep/model-0/notes.txt")));
  succeed(fmt::format("{}/train_cifar --config {} --output {}", TANDEM_BIN, file("sweep/model-1/config.toml"),
                      file("alone")));
  expect_same_checkpoint(checkpoint("alone", 2), checkpoint("sweep/model-1", 2));
  succeed(fmt::format("{}/train_cifar --config {} --evaluate --resume {}", TANDEM_BIN,
                      file("sweep/config.toml"), file("sweep")));
}

// Models with batches of different sizes are in runs of their own; each model is that of its command.
TEST_F(CliSweep, EachBatchSizeIsARunOfItsOwn) {
  const std::string flags = "--arch mlp --epochs 2 --sweep 'batch-size=50,100;momentum=0,0.9' --output ";
  const Ended sweep = succeed(base() + flags + file("sweep"));
  EXPECT_NE(std::string::npos, (sweep.out + sweep.err).find("this is run 2 of 2, with batches of 100"))
      << sweep.err;
  for (const int batch_size : {50, 100})
    for (const int m : {0, 1}) {
      const std::string run = fmt::format("sweep/batch-size-{}", batch_size),
                        name = fmt::format("batch-size-{}: model {}  test accuracy", batch_size, m),
                        alone = fmt::format("alone-{}-{}", batch_size, m);
      const std::size_t at = sweep.out.find(name);
      ASSERT_NE(std::string::npos, at) << sweep.out;
      const std::size_t begin = sweep.out.find("train_cifar", at);
      const std::string command = sweep.out.substr(begin, sweep.out.find('\n', begin) - begin);
      SCOPED_TRACE(command);
      succeed(fmt::format("{}/{} --output {}", TANDEM_BIN, command, file(alone)));
      const int steps = 2 * 300 / batch_size;
      expect_same_checkpoint(checkpoint(alone, steps), checkpoint(fmt::format("{}/model-{}", run, m), steps));
    }
  EXPECT_TRUE(std::regex_search(sweep.out, std::regex("\n  4\\. batch-size-")));
  EXPECT_FALSE(std::regex_search(sweep.out, std::regex("\n  5\\. ")));
}

// The second run was killed; the first is complete.
TEST_F(CliSweep, OfBatchSizesGoesOnWhereItWasInterrupted) {
  const std::string flags =
      base() + "--arch mlp --sweep 'batch-size=50,100' --checkpoint-every 2 --epochs 2 ";
  succeed(flags + "--output " + file("whole"));
  succeed(flags + "--output " + file("sweep"));
  expect_refused(kTrain + "--arch mlp -e --resume " + file("sweep"),
                 {"there is no checkpoint, but '", "sweep/batch-size-100' has some"});
  fs::remove(file("sweep/batch-size-100/summary.json"));
  fs::remove_all(checkpoint("sweep/batch-size-100", 6));
  const Ended rest = succeed(flags + "--resume auto --output " + file("sweep"));
  const std::string said = rest.out + rest.err;
  EXPECT_NE(std::string::npos, said.find("batch-size-50' is complete")) << said;
  EXPECT_NE(std::string::npos, said.find("resumes at batch 4")) << said;
  for (const char* run : {"/batch-size-50", "/batch-size-100"}) {
    const int steps = std::string(run).ends_with("50") ? 12 : 6;
    expect_same_checkpoint(checkpoint("whole" + std::string(run), steps),
                           checkpoint("sweep" + std::string(run), steps));
  }
  EXPECT_TRUE(std::regex_search(rest.out, std::regex("  2\\. batch-size-(50|100)  test accuracy")))
      << rest.out;
}

// Of two runs, the first one is in its last evaluation, which it completes.
TEST_F(CliSweep, OfBatchSizesEndsAfterASignal) {
  const std::string job = fmt::format(
      "{}/train_cifar --arch convnet --synthetic-train 200 --synthetic-test 20000 --steps 1 --sweep "
      "batch-size=50,100 --output {}",
      TANDEM_BIN, file("sweep"));
  const Ended e = run(job + " & until [ -s " + file("sweep/batch-size-50/metrics.jsonl") +
                      " ]; do sleep 0.02; done; sleep 0.3; kill -USR1 $!; wait $!");
  EXPECT_EQ(138, e.status) << e.err;
  EXPECT_NE(std::string::npos, e.out.find("the same command with --resume auto continues with run 2 of 2"))
      << e.out;
  EXPECT_NE(std::string::npos, e.out.find("  1. batch-size-50  test accuracy")) << e.out;
  EXPECT_EQ(std::string::npos, e.out.find("this is run 2")) << e.out;
  EXPECT_FALSE(fs::exists(file("sweep/batch-size-100")));
  const Ended rest = succeed(job + " --resume auto");
  EXPECT_NE(std::string::npos, rest.out.find("  2. batch-size-")) << rest.out;
}

TEST_F(CliSweep, OfBatchSizesGoesOnAfterARunThatDiverges) {
  const Ended e = run(base() + "--arch mlp --epochs 1 --lr 1e30 --sweep batch-size=50,100");
  EXPECT_EQ(1, e.status);
  EXPECT_NE(std::string::npos, e.out.find("this is run 2 of 2")) << e.out;
  EXPECT_TRUE(std::regex_search(
      e.out, std::regex("  2\\. batch-size-100  test accuracy -  train loss -  .*; diverged")))
      << e.out;
  EXPECT_NE(std::string::npos, e.err.find("all models of the sweep have diverged")) << e.err;
}

TEST_F(CliSweep, OfOneBatchSizeIsOneRun) {
  const Ended e = succeed(base() + "--arch mlp --steps 1 --sweep 'batch-size=50;lr=0.1,0.2' --trace " +
                          file("trace.json") + " --output " + file("sweep"));
  EXPECT_NE(std::string::npos, e.out.find("  2. model ")) << e.out;
  EXPECT_NE(std::string::npos, command_of(e, 0).find("--batch-size 50 --lr 0.1")) << e.out;
  EXPECT_TRUE(fs::exists(file("sweep/model-1")));
}

TEST_F(CliSweep, OfBatchSizesShowsTheRatesThatFollowFromThem) {
  const Ended e = succeed(base() + "--arch mlp --steps 1 --sweep batch-size=32,64");
  for (const char* rate : {"batch-size 32, lr 0.0125 by default", "batch-size 64, lr 0.025 by default"})
    EXPECT_NE(std::string::npos, e.out.find(rate)) << e.out;
}

// Before the first run has trained.
TEST_F(CliSweep, OfBatchSizesRefusesWhatALaterRunCannotDo) {
  const std::string train = base() + "--arch mlp --steps 2 ";
  succeed(train + "--output " + file("sweep/batch-size-100"));
  expect_refused(train + "--sweep batch-size=50,100 --output " + file("sweep"),
                 {"--output", "batch-size-100", "holds a run already"});
  EXPECT_FALSE(fs::exists(file("sweep/batch-size-50")));
  expect_refused(base() + "--arch mlp --sweep batch-size=50,400 --output " + file("other"),
                 {"--batch-size 400 is larger than the training set of 300 images"});
  const Ended e = run(kTrain + "--synthetic-train 4000000 -b 4000001 --log-level info");
  EXPECT_NE(std::string::npos, e.err.find("larger than the training set of 4000000")) << e.err;
  EXPECT_EQ(std::string::npos, (e.out + e.err).find("draws")) << "they need not be drawn for that";
  EXPECT_FALSE(fs::exists(file("other")));
}

TEST_F(CliSweep, RefusesWhatItCannotSweep) {
  const std::string train = base() + "--steps 1 --sweep ";
  const std::pair<const char*, std::vector<std::string>> cases[] = {
      {"'arch=mlp,convnet'", {"cannot differ in --arch", "lr, sched", "in runs of their own, in batch-size"}},
      {"'batch-size~log(1,9)' --models 2", {"batch-size takes a list"}},
      {"'batch-size=5,10,5'", {"--batch-size 5 is given twice"}},
      {"'batch-size=5;lr=0.1;batch-size=10'", {"--batch-size is given twice"}},
      {"'batch-size=5,0'", {"--batch-size 0: must be at least 1"}},
      {"'batch-size=5,10' -b 5", {"--batch-size stands beside --sweep"}},
      {"'batch-size=5,10;lr=0.1,0.2' --models 3", {"2 batch sizes, and --models is 3"}},
      {"'batch-size=5,10' --models 4", {"2 batch sizes, and --models is 4: it must be their number"}},
      {"'batch-size=5,10;lr=0.1,0.2' --models 6", {"2 combinations", "--models is 3", "for each batch size"}},
      {"'lr=0.1,0.2;seed=1,2' --models 8", {"4 combinations", "--models is 8: it must be their number"}},
      {"'batch-size=5,10' --trace t.json", {"--trace t.json", "is 2 runs", "a trace.json in its directory"}},
      {"'batch-size=5,10' --resume somewhere", {"--resume somewhere", "is 2 runs", "--resume auto"}},
      {"'lr'", {"'lr' is no flag with its values", "lr=0.1,0.05"}},
      {"'rate=1'", {"there is no flag --rate"}},
      {"'lr=0.1,'", {"'lr=0.1,' has an empty value"}},
      {"'lr=0.1;lr=0.2'", {"--lr is given twice"}},
      {"'lr=fast'", {"--lr", "'fast' is no finite decimal number"}},
      {"'momentum=0.9,2'", {"momentum"}},
      {"'lr~log(0,1)' --models 2", {"the ends of log are above 0"}},
      {"'lr~log(1,0.1)' --models 2", {"the smaller one first"}},
      {"'lr~normal(0,1)' --models 2", {"a range is log(a,b) or uniform(a,b)"}},
      {"'lr~log(0.1,1)'", {"--models must say how many"}},
      {"'lr=0.1,0.2' --models 3", {"2 combinations", "--models is 3: it must be a multiple of them"}},
      {"'lr=0.1,0.2;wd~log(0.1,1)' --models 3", {"a multiple of them"}},
      {"'lr=0.1,0.2' --lr 0.1", {"--lr stands beside --sweep"}},
      {"'betas=0.9:0.99'", {"--betas 0.9:0.99 has no effect with --opt sgd"}},
      {"'dropout=0.1,0.2'", {"--dropout has no effect on mlp-residual"}},
      {"'lr=0.1,0.2;seed=1:2'", {"one --lr and one --seed"}},
      {"'lr=0.1,0.2' --patience 2", {"--patience has no effect on a model of --sweep alone"}},
      {"'lr=0.1,0.2' --on-nan mask --loss-scale 1024", {"--on-nan mask", "--loss-scale"}},
      {"'label-smoothing=0,0.1' --mixup 0.2", {"--mixup, --label-smoothing is 0 in all models"}},
  };
  for (const auto& [sweep, words] : cases) expect_refused(train + sweep, words);
  expect_refused(base() + "--steps 1 --prune median", {"--prune has no effect on one model"});
  expect_refused(base() + "--steps 1 --on-nan mask", {"--on-nan mask is for several models"});
}

}  // namespace
}  // namespace tandem::testing
