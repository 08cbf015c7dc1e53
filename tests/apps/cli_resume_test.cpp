// Runs resume from intact checkpoints, and from nothing else.
#include "cli_resume.h"

#include <algorithm>
#include <fstream>
#include <functional>

#include <tandem/core/base/checksum.h>
#include <tandem/pipeline/schedule_file.h>
#include <tandem/pipeline/schedules.h>
#include <tandem/train/checkpoint_manifest.h>

namespace tandem::testing {
using namespace engine;
namespace {

// A resume must not use checkpoints that another run left.
TEST_F(Resume, ForceRemovesTheCheckpointsOfTheRunThatItReplaces) {
  const std::string mlp = kShort + "--arch mlp --checkpoint-every 5 --output ";
  succeed(mlp + file("old") + " --lr 0.5");
  succeed(mlp + file("other") + " --steps 10");
  succeed(mlp + file("old") + " --force --steps 15 --resume " + file("other"));
  EXPECT_FALSE(fs::exists(checkpoint("old", 20)));
  EXPECT_TRUE(fs::exists(checkpoint("old", 15)));
  EXPECT_EQ(5u, losses("old").size());
  const Ended e = succeed(mlp + file("old") + " --resume auto --steps 15 -e");
  EXPECT_NE(std::string::npos, e.out.find("test accuracy")) << e.out;
}

TEST_F(Resume, ATruncatedRunStateIsPassedOver) {
  const std::string command = kShort + "--arch mlp --checkpoint-every 10 --output " + file("run");
  succeed(command);
  const std::string state = checkpoint("run", 20) + "/run.json", whole = read_file(state);
  for (std::size_t n = 0; n < whole.size(); n += 97) {
    write_file(state, whole.substr(0, n));
    const Ended e = succeed(command + " -e --resume auto");
    EXPECT_EQ(0u, e.out.find("warning: a checkpoint is passed over")) << e.out;
  }
}

TEST_F(Resume, ADamagedLineOfMetricsIsNamedAndTheOthersStay) {
  const std::string command = kShort + "--arch mlp --checkpoint-every 10 --output " + file("run");
  succeed(command + " --steps 10");
  const std::string metrics = file("run/metrics.jsonl");
  std::string damaged = read_file(metrics);
  for (int line = 1, at = 0; line < 5; ++line)
    at = static_cast<int>(damaged.find('\n', at)) + 1, damaged[at] = 'x';
  write_file(metrics, damaged + R"({"step": 2)");
  const Ended e = succeed(command + " --resume auto --steps 20");
  for (const char* line : {"line 2", "line 3", "line 4", "line 5"})
    EXPECT_NE(std::string::npos, e.out.find(line + std::string(" is damaged, and is left out"))) << e.out;
  EXPECT_EQ(std::string::npos, e.out.find("line 6 is damaged")) << e.out;
  EXPECT_EQ(16u, losses("run").size());
}

TEST_F(Resume, AKilledRunResumesByTheSameCommand) {
  const std::string command =
      kShort + "--arch mlp --parallel data --checkpoint-every 4 --resume auto --output ";
  succeed(command + file("whole"));
  // The link slows it down. It is killed as soon as the first checkpoint exists, wherever that is.
  const Ended killed = run(command + file("run") + " --link 50MB/s,1us & until [ -d " + checkpoint("run", 4) +
                           " ]; do sleep 0.01; done; kill -KILL $!; wait $!");
  EXPECT_EQ(137, killed.status) << killed.err;
  const Ended rest = succeed(command + file("run"));
  EXPECT_NE(std::string::npos, rest.out.find("resumes at batch ")) << rest.out;
  EXPECT_EQ(losses("whole"), losses("run")) << "every step is written once";
  expect_same_checkpoint(checkpoint("whole", 20), checkpoint("run", 20));
  const std::string files = "ls -lR --time-style=full-iso " + file("run");
  const std::string before = run(files).out;
  const Ended again = succeed(command + file("run"));
  EXPECT_NE(std::string::npos, again.out.find("nothing is left to train")) << again.out;
  EXPECT_EQ(before, run(files).out) << "a finished run's measurements stay";
  EXPECT_EQ(again.out.substr(again.out.find("test accuracy"), 20),
            succeed(command + file("run") + " -e").out.substr(0, 20));
  EXPECT_EQ(before, run(files).out) << "--evaluate writes nothing";
  fs::remove(file("run/summary.json"));  // as if killed just before
  const Ended summed = succeed(command + file("run"));
  EXPECT_NE(std::string::npos, summed.out.find("resumes at batch 20")) << summed.out;
  EXPECT_TRUE(fs::exists(file("run/summary.json")));
  EXPECT_EQ(losses("whole"), losses("run"));
}

// The copies of a step take most of its time, so that the process is killed while activations are on their
// way.
TEST_F(Resume, AKillDuringASwapLosesNoBit) {
  const std::string command =
      kShort +
      "--synthetic-train 112 -b 16 --arch convnet --memory-plan vdnn --checkpoint-every 2 --resume auto --copy-link ";
  succeed(command + "8GB/s --output " + file("whole"));
  for (const char* seconds : {"0", "0.05"}) {
    SCOPED_TRACE(seconds);
    const std::string name = std::string("killed-") + seconds;
    const Ended killed =
        run(command + "50MB/s --output " + file(name) + " & until [ -d " + checkpoint(name, 4) +
            " ]; do sleep 0.01; done; sleep " + seconds + "; kill -KILL $!; wait $!");
    EXPECT_EQ(137, killed.status) << killed.err;
    const Ended rest = succeed(command + "8GB/s --output " + file(name));
    EXPECT_NE(std::string::npos, rest.out.find("resumes at batch ")) << rest.out;
    EXPECT_EQ(losses("whole"), losses(name));
    expect_same_checkpoint(checkpoint("whole", 20), checkpoint(name, 20));
  }
}

TEST_F(Resume, UsesTheLastIntactCheckpoint) {
  const std::string command = kShort + "--arch mlp --checkpoint-every 5 --keep 3 --output " + file("run");
  succeed(command);
  const auto whole = losses("run");
  for (const int step : {20, 15}) {
    std::fstream model(checkpoint("run", step) + "/model.safetensors",
                       std::ios::in | std::ios::out | std::ios::binary);
    model.seekp(1000).put(7).flush();
  }
  const Ended e = succeed(command + " --resume auto");
  EXPECT_NE(std::string::npos, e.out.find("resumes at batch 10")) << e.out;
  EXPECT_NE(std::string::npos, e.out.find("passed over: checkpoint file '" + checkpoint("run", 20))) << e.out;
  EXPECT_EQ(whole, losses("run"));
  EXPECT_TRUE(succeeds(kShort + "--arch mlp -e --resume " + checkpoint("run", 20)))
      << "the damaged checkpoint was replaced";
  for (const int step : {10, 15, 20}) fs::resize_file(checkpoint("run", step) + "/model.safetensors", 9);
  expect_refused(command + " --resume auto", {"no checkpoint", "is intact", "step-20", "step-10"});
}

TEST_F(Resume, KeepsTheRequestedCheckpoints) {
  const std::string command = kShort + "--arch mlp --checkpoint-every 2 --keep-every 6 --keep-best --output ";
  succeed(command + file("run"));
  succeed(kShort + "--arch mlp --checkpoint-every 2 --output " + file("plain"));
  EXPECT_EQ(losses("plain"), losses("run")) << "evaluation changes no loss";
  double best = 0;
  std::vector<int> kept;
  for (int step = 2; step <= 20; step += 2)
    if (fs::exists(checkpoint("run", step))) {
      kept.push_back(step);
      best = std::max(best, read_json(checkpoint("run", step) + "/manifest.json").at("score").get<double>());
    }
  for (const int step : {6, 12, 18, 20})
    EXPECT_NE(kept.end(), std::find(kept.begin(), kept.end(), step)) << step;
  EXPECT_LE(kept.size(), 5u);
  EXPECT_GE(best, read("run/summary.json").at("test_accuracy").get<double>());
}

TEST_F(Resume, EvaluatesAndFineTunesFromWeights) {
  const std::string mlp = kShort + "--arch mlp ";
  const Ended trained = succeed(mlp + "--checkpoint-every 20 --output " + file("run"));
  const std::string weights = checkpoint("run", 20) + "/model.safetensors";
  expect_refused(mlp + "-e --resume auto --output " + file("none"), {"there is no checkpoint"});
  for (const std::string& from : {file("run"), file("run/checkpoints"), checkpoint("run", 20), weights}) {
    const Ended e = succeed(mlp + "-e --resume " + from);
    EXPECT_EQ(0u, e.out.find("test accuracy ")) << e.out;
    EXPECT_NE(std::string::npos, trained.out.find(e.out.substr(0, e.out.find('%')))) << e.out << trained.out;
    EXPECT_NE(std::string::npos, e.out.find(", of " + (from == weights ? weights : checkpoint("run", 20))))
        << e.out;
  }
  succeed(mlp + "--lr 0.001 --output " + file("fine") + " --resume " + weights);
  EXPECT_LT(losses("fine")[0].second.get<double>(), losses("run")[0].second.get<double>());
  EXPECT_EQ(20u, losses("fine").size());
  succeed(mlp + "--lr 0.001,0.002 --output " + file("two") + " --resume " + weights);
  EXPECT_EQ(losses("fine")[0].second, losses("two")[0].second[0]);
}

// Changes run.json of a checkpoint, with the checksum in its listing.
void change_state(const std::string& checkpoint, const std::function<void(json&)>& change) {
  const std::string state = checkpoint + "/run.json", listing = checkpoint + "/" + kManifest;
  json changed = read_json(state);
  change(changed);
  write_file(state, changed.dump(1) + "\n");
  CheckpointManifest manifest = manifest_from_json(listing, read_file(listing));
  for (auto& f : manifest.files) {
    if (f.name != "run.json") continue;
    const InputFile now("file", state);
    f.bytes = now.size();
    f.xxh3 = checksum_of(now);
  }
  write_file(listing, to_json(manifest));
}

TEST_F(Resume, AnOlderRunGetsTheDefaultsOfNewOptions) {
  const std::string mlp = kShort + "--arch mlp --checkpoint-every 10 ";
  succeed(mlp + "--output " + file("run"));
  change_state(checkpoint("run", 10), [](json& older) {
    for (const char* key : {"mixup", "nesterov", "tensorboard"})
      EXPECT_EQ(1u, older["arguments"].erase(key)) << key;
  });
  expect_refused(mlp + "--mixup 0.2 --nesterov --resume " + checkpoint("run", 10) + " --output " + file("x"),
                 {"mixup 0.2, was 0.0", "nesterov true, was false"});
  succeed(mlp + "--resume " + checkpoint("run", 10) + " --output " + file("rest"));
  EXPECT_EQ(0.0, read("rest/args.json").at("mixup")) << "args.json contains the defaults";
}

TEST_F(Resume, RefusesAForgedStateByItsFile) {
  const std::string job = kShort +
                          "--arch mlp --parallel pipeline --stages 2 --checkpoint-every 10 --output " +
                          file("run"),
                    state = checkpoint("run", 20);
  succeed(job);
  change_state(state, [](json& forged) { forged["cuts"] = {"zzz"}; });
  expect_refused(job + " --steps 25 --resume auto", {"checkpoint", "step-20", "no module 'zzz'"});
  change_state(state, [](json& forged) { forged["epoch"] = 1000; });
  expect_refused(job + " --steps 25 --resume auto", {"step-20/run.json", "epoch 1000 after 20 batches"});
}

TEST_F(Resume, RefusesAnotherRun) {
  const std::string mlp = kShort + "--arch mlp ";
  succeed(mlp + "--checkpoint-every 10 --output " + file("run"));
  const std::string from = " --resume " + file("run");
  expect_refused(kShort + "--arch convnet" + from, {"arch \"convnet\", was \"mlp\""});
  expect_refused(mlp + "--lr 0.1 --momentum 0.5 --seed 3" + from,
                 {"lr [0.1]", "momentum 0.5, was 0.9", "seed [3]"});
  expect_refused(mlp + "--synthetic-train 449" + from,
                 {"synthetic_train 449, was 448", "the training images are different"});
  expect_refused(mlp + "--sched cosine" + from, {"sched"});
  expect_refused(mlp + "--steps 15" + from, {"20 batches are trained already", "ends after 15"});
  expect_refused(mlp + "--lr 0.1,0.2" + from, {"models 2, was 1"});
  expect_refused(mlp + "--resume " + file("none"), {"there is no checkpoint", "step-N", "auto"});
  expect_refused(mlp + "--resume " + write("weights.safetensors", "12345678{}"),
                 {"weights.safetensors", "header"});
  expect_refused(kShort + "--arch convnet --resume " + checkpoint("run", 20) + "/model.safetensors",
                 {"missing: block0.conv.weight", "unexpected: hidden0.weight", "mismatched: head.weight"});
  expect_refused(mlp + "--output " + file("run"), {"holds a run already"});
  expect_refused(mlp + "--output " + file("run") + " --resume " + checkpoint("run", 10),
                 {"newer checkpoint", "step-20"});
  expect_refused(mlp + "--force --output " + file("run") + from, {"--force would replace"});
  expect_refused(mlp + "--resume auto", {"--resume auto needs --output"});
  expect_refused(mlp + "--checkpoint-every 5", {"--output"});
  expect_refused(mlp + "-e", {"without --resume"});
  expect_refused(mlp + "--checkpoint-every 5 --keep 1 --output " + file("x"),
                 {"--keep 1: must be at least 2"});
  const Ended other =
      succeed(mlp + "--parallel data --output " + file("other") + " --resume " + checkpoint("run", 10));
  EXPECT_NE(std::string::npos,
            other.out.find("warning: losses can differ from those of an uninterrupted run"))
      << other.out;
  succeed(mlp + "--force --output " + file("run"));
  EXPECT_FALSE(fs::exists(checkpoint("run", 10))) << "another run's checkpoints are removed";
}

// Cuts decide which weights a gradient is computed with if batches overlap, and how the norm is added up.
TEST_F(Resume, WarnsOfOtherCutsOnlyIfTheyCanChangeLosses) {
  const std::string plan = " --plan " + write("plan.json", R"({"cuts": ["head"], "swap": ["block0"]})"),
                    other = " --plan " + write("other.json", R"({"cuts": ["block1"]})");
  const auto warns = [](const Ended& e) { return e.out.find("warning: losses can differ") < e.out.size(); };
  for (const std::string way : {"1f1b", "pipedream", "1f1b --clip-grad 0.5"}) {
    SCOPED_TRACE(way);
    const std::string job = kShort + "--parallel pipeline --checkpoint-every 10 --force --schedule " + way;
    const std::string from = " --resume " + checkpoint("whole", 10) + " --output ";
    succeed(job + plan + " --output " + file("whole"));
    EXPECT_EQ(way != "1f1b", warns(succeed(job + other + from + file("other"))));
    EXPECT_FALSE(warns(succeed(job + from + file("same")))) << "without a plan it keeps the cuts";
    EXPECT_EQ(losses("whole", 10), losses("same"));
    if (way == "1f1b") {
      EXPECT_EQ(losses("whole", 10), losses("other"));
    } else if (way == "pipedream") {
      EXPECT_NE(losses("whole", 10), losses("other"));
    }
  }
}

// Stages of a schedule that flushes compute what one device does.
TEST_F(Resume, WarnsOfOtherStagesOnlyIfTheyCanChangeLosses) {
  const auto warns = [](const Ended& e) { return e.out.find("warning: losses can differ") < e.out.size(); };
  const std::string job = kShort + "--arch mlp ", flush = "--stages 2 --schedule 1f1b --microbatches 2",
                    lagged = "--stages 2 --schedule dualpipe --microbatches 2";
  const auto resumed = [&](const std::string& of, const std::string& way) {
    return run(job + way + " --force --output " + file("rest") + " --resume " + checkpoint(of, 10));
  };
  for (const std::string& way : {flush, lagged})
    succeed(job + "--checkpoint-every 10 " + way + " --output " + file(way == flush ? "flush" : "lagged"));
  for (const std::string way : {"--stages 3 --schedule gpipe --microbatches 2", "--stages 1 --microbatches 2",
                                "--stages 2 --schedule interleaved --microbatches 2"}) {
    EXPECT_FALSE(warns(resumed("flush", way))) << way;
    EXPECT_EQ(losses("flush", 10), losses("rest")) << way;
  }
  EXPECT_TRUE(warns(resumed("flush", lagged)));
  EXPECT_TRUE(warns(resumed("flush", "--stages 2 --schedule 1f1b --microbatches 4")));
  EXPECT_TRUE(warns(resumed("lagged", flush)));
}

// A file of the same name with another schedule is noticed, the same schedule elsewhere is not.
TEST_F(Resume, ComparesTheContentsOfAScheduleFile) {
  const auto schedule = [&](const std::string& name, const std::string& of) {
    return write(name, engine::to_json(make_schedule(of, {.stages = 2, .microbatches = 2})));
  };
  const std::string job = kShort + "--arch mlp --parallel pipeline --microbatches 2 --stages 2 --output " +
                          file("run") + " --schedule ";
  const std::string longer = " --resume auto --steps ";
  const auto warns = [](const Ended& e) { return e.out.find("warning: losses can differ") < e.out.size(); };
  succeed(job + schedule("mine.json", "dualpipe"));
  EXPECT_FALSE(warns(succeed(job + schedule("moved.json", "dualpipe") + longer + "22")));
  EXPECT_FALSE(warns(succeed(job + "dualpipe" + longer + "24")));
  EXPECT_FALSE(warns(succeed(job + "dualpipe-async" + longer + "25")));
  EXPECT_FALSE(warns(succeed(job + file("mine.json") + longer + "26")));
  const Ended other = succeed(job + schedule("mine.json", "pipedream") + longer + "28");
  EXPECT_TRUE(warns(other)) << other.out;
  expect_words(other.out, {"the schedule '" + file("mine.json") + "' is different"});
  EXPECT_TRUE(warns(succeed(job + "1f1b" + longer + "30")));
}

TEST_F(Resume, ARunWithoutCheckpointsSavesOneAtItsEnd) {
  const std::string job = kShort + "--arch mlp ", ended = " --resume " + file("run");
  const Ended e = succeed(job + "--output " + file("run"));
  EXPECT_TRUE(fs::exists(checkpoint("run", 20)));
  const auto accuracy = [](const std::string& out) {
    return out.substr(out.rfind("test accuracy"), std::string("test accuracy 10.00").size());
  };
  EXPECT_EQ(accuracy(e.out), accuracy(succeed(job + "-e" + ended).out));
  succeed(job + "--steps 30 --resume auto --output " + file("run"));
  succeed(job + "--steps 30 --output " + file("whole"));
  EXPECT_EQ(losses("whole"), losses("run"));
  // A resumed run does not inherit where the first run started from.
  succeed(job + "--steps 40" + ended + " --output " + file("other"));
  EXPECT_EQ(std::string::npos, read_file(file("other/config.toml")).find("resume"));
}

TEST_F(Resume, LinesThatAUserAddsToTheMetricsStay) {
  const std::string job = kShort + "--arch mlp --resume auto --output " + file("run") + " --steps ";
  succeed(job + "10");
  const std::string note = R"({"step": 3, "note": "the rate was too high"})";
  std::ofstream(file("run/metrics.jsonl"), std::ios::app) << note << "\n";
  succeed(job + "20");
  EXPECT_NE(std::string::npos, read_file(file("run/metrics.jsonl")).find(note + "\n"));
  EXPECT_EQ(21, std::ssize(metrics("run"))) << "the steps, and the note";
}

// A file may not grow beyond 500 kB, as on a full disk.
TEST_F(Resume, AFailedSaveIsReportedAndTrainingContinues) {
  const Ended e =
      run("ulimit -f 1000; " + kShort + "--arch mlp --checkpoint-every 10 --output " + file("run"));
  EXPECT_EQ(1, e.status) << "the last checkpoint is the purpose of the run";
  EXPECT_NE(std::string::npos, e.err.find("the run is complete, but its last checkpoint could not be saved"))
      << e.err;
  EXPECT_NE(std::string::npos, e.out.find("test accuracy")) << e.out;
  EXPECT_NE(std::string::npos,
            e.err.find("the checkpoint after 10 batches failed, but training continues: cannot write"))
      << e.err;
  EXPECT_NE(std::string::npos, e.err.find("File too large")) << e.err;
  EXPECT_EQ(20u, losses("run").size());
  EXPECT_TRUE(fs::is_empty(file("run/checkpoints")));
}

TEST_F(Resume, AFailedSaveOfARunThatASignalEndsSaysNotThatTrainingContinues) {
  const std::string metrics = file("run/metrics.jsonl");
  const Ended e =
      run("ulimit -f 1000; " + kShort + "--arch mlp --epochs 10000 --checkpoint-every 100000 --output " +
          file("run") + " & until [ -s " + metrics + " ]; do sleep 0.02; done; kill -INT $!; wait $!");
  EXPECT_EQ(130, e.status) << e.err;
  EXPECT_NE(std::string::npos, e.err.find(" failed: cannot write")) << e.err;
  EXPECT_EQ(std::string::npos, e.err.find("continues")) << e.err;
  EXPECT_NE(std::string::npos, e.out.find("no checkpoint was saved\n")) << e.out;
}

TEST_F(Resume, UnwritableMetricsAreReportedOnceAndTrainingContinues) {
  const std::string command = kShort + "--arch mlp --steps 60 --tensorboard 0 --output " + file("run");
  const Ended e = run("ulimit -f 5; " + command);  // blocks of 512 bytes, or of 1024
  EXPECT_EQ(1, e.status) << "the trained weights cannot be saved either";
  EXPECT_NE(std::string::npos, e.err.find("training continues")) << e.err;
  EXPECT_NE(std::string::npos, e.err.find("metrics.jsonl' cannot be written")) << e.err;
  const std::string said = e.err.substr(0, e.err.find("the checkpoint after 60"));
  EXPECT_EQ(1, std::ranges::count(said, '\n')) << e.err;
  EXPECT_NE(std::string::npos, e.out.find("step 59 (60 of 60)  loss ")) << e.out;
  EXPECT_NE(std::string::npos, e.out.find("test accuracy")) << e.out;
}

// The same arguments, but each rank reads its own machine's checkpoints.
TEST_F(Resume, RanksWithDifferentCheckpointsAreRefused) {
  if (!TANDEM_HAS_MPIRUN) return;
  const std::string command = kShort + "--arch mlp --steps 4 --checkpoint-every 2 --output ";
  for (const std::string rank : {"0", "1"}) {
    fs::create_directory(file(rank));
    succeed(command + file(rank + "/run"));
  }
  fs::remove_all(file("1/run/checkpoints/step-4"));
  const Ended e = run(kMpi + "sh -c 'cd " + file("") + "$OMPI_COMM_WORLD_RANK && exec " + kShort +
                      "--arch mlp --resume run'");
  EXPECT_EQ(1, e.status);
  EXPECT_NE(std::string::npos,
            e.err.find("the ranks disagree on the checkpoint that the run continues: rank 1"))
      << e.err;
}

// A run that was killed before its first checkpoint leaves its arguments.
TEST_F(Resume, AutoBeginsNoOtherRunInPlaceOfOneWithoutACheckpoint) {
  const std::string train = kTrain + "--steps 2 --output " + file("run");
  succeed(train + " --arch mlp");
  fs::remove_all(file("run/checkpoints"));
  fs::remove(file("run/summary.json"));
  for (const char* other : {" --arch convnet", " --arch mlp --lr 0.01"})
    expect_refused(train + other + " --resume auto", {"a run without a checkpoint", "was", "another directory"});
  EXPECT_EQ("mlp", read("run/args.json").at("arch"));
  succeed(train + " --arch mlp --resume auto");
}

}  // namespace
}  // namespace tandem::testing
