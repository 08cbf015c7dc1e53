// The files of others: no command replaces or removes them.
#include <map>
#include <random>

#include <fmt/format.h>

#include "foreign_files.h"
#include "seed.h"

namespace tandem::testing {
namespace {

namespace fs = std::filesystem;

// Names that a run gives to its files, or needs for its checkpoints.
const std::vector<std::string> kOfRuns{"args.json",
                                       "config.toml",
                                       "metrics.jsonl",
                                       "summary.csv",
                                       "summary.json",
                                       "plan.json",
                                       "trace.json",
                                       "all-reduce-1.json",
                                       "memory.json",
                                       "collectives-0.jsonl",
                                       "events.out.tfevents.1700000000.host.1.0",
                                       "checkpoints/step-5/weights.pt",
                                       "checkpoints/step-6.tandem-tmp/weights.pt",
                                       "checkpoints/step-7/run.json"};

TEST_F(ForeignFiles, ARunWithoutATraceLeavesATraceOfOthers) {
  put("run/trace.json", "[]");
  for (const char* again : {"", " --force", " --resume auto --steps 3"})
    EXPECT_TRUE(succeeds(kTrain + "--arch mlp --steps 2 --output " + file("run") + again)) << again;
  expect_untouched();
}

TEST_F(ForeignFiles, ARunDoesNotBeginWhereItWouldReplaceThem) {
  for (const std::string& name : kOfRuns) {
    const std::string directory = "of " + std::to_string(foreign_.size());
    put(directory + "/" + name, R"({"loss": [3, 2, 1], "of": "another program"})");
    put(directory + "/notes.txt", "mine");
    const std::string named = name.substr(0, name.find('/', 12));  // checkpoints/step-5
    for (const char* force : {"", " --force"})
      expect_refused(kTrain + "--arch mlp --steps 1 --trace --output '" + file(directory) + "'" + force,
                     {named, "no run of this version wrote", "stays"});
    expect_untouched();
  }
  put("a file/checkpoints", "a file, not a directory");
  expect_refused(kTrain + "--arch mlp --steps 1 --output '" + file("a file") + "'", {"checkpoints", "stays"});
  // An event file of another program stays where the run writes none.
  put("tensorboard/events.out.tfevents.1700000000.host.1.0", "of PyTorch");
  EXPECT_TRUE(succeeds(kTrain + "--arch mlp --steps 1 --tensorboard 0 --output " + file("tensorboard")));
  expect_untouched();
}

TEST_F(ForeignFiles, AForcedRunReplacesARunAndLeavesTheRest) {
  const std::string job =
      kTrain + "--arch mlp --steps 2 --checkpoint-every 1 --trace --output " + file("run");
  ASSERT_TRUE(succeeds(job));
  put("run/notes.txt", "mine");
  put("run/checkpoints/best.pt", "mine");
  expect_refused(job, {"holds a run already", "--force"});
  const Ended e = run(job + " --force --seed 3");
  EXPECT_EQ(0, e.status) << e.err;
  EXPECT_EQ(3, read("run/args.json").at("seed").at(0));
  EXPECT_EQ(2u, metrics().size());
  ASSERT_TRUE(succeeds(job + " --force --steps 1"));
  EXPECT_FALSE(fs::exists(file("run/checkpoints/step-2"))) << "of the run that was replaced";
  expect_untouched();
}

TEST_F(ForeignFiles, WhatAUserKeepsInACheckpointStays) {
  const std::string job = kTrain + "--arch mlp --checkpoint-every 1 --output " + file("run");
  ASSERT_TRUE(succeeds(job + " --steps 2"));
  put("run/checkpoints/step-1/notes.txt", "mine");
  expect_refused(job + " --steps 2 --force", {"checkpoints/step-1/notes.txt", "stays"});
  const Ended e = run(job + " --steps 5 --resume auto");
  EXPECT_EQ(0, e.status) << e.err;
  EXPECT_FALSE(fs::exists(file("run/checkpoints/step-2")))
      << "only the newest two stay, and what is not a run's alone";
  expect_untouched();
}

TEST_F(ForeignFiles, WhatAUserKeepsBesideACheckpointStays) {
  const std::string job = kTrain + "--arch mlp --checkpoint-every 1 --resume auto --output " + file("run");
  ASSERT_TRUE(succeeds(job + " --steps 2"));
  fs::copy(file("run/checkpoints/step-2"),
           file("run/checkpoints/step-2.tandem-old"));  // stands in the way of step-2
  put("run/checkpoints/step-2.tandem-old/README", "a copy");
  put("run/checkpoints/step-1/model-mean.safetensors", "mine");
  const Ended e = run(job + " --steps 5");
  EXPECT_EQ(0, e.status) << e.err;
  expect_untouched();

  put("run/checkpoints/step-5/notes.txt", "mine");
  fs::resize_file(file("run/checkpoints/step-5/model.safetensors"), 100);
  const Ended past = run(job + " --steps 6");  // begins again after step 4
  EXPECT_EQ(0, past.status) << past.err;
  expect_words(past.err, {"checkpoints/step-5", "files of others", "stays"});
  expect_untouched();

  put("run/checkpoints/step-9.tandem-tmp/model-mine.safetensors", "mine");
  expect_refused(job + " --steps 7", {"checkpoints/step-9.tandem-tmp", "stays"});
  expect_untouched();
}

TEST_F(ForeignFiles, WhatAUserKeepsInAnEarlierSweepStays) {
  const std::string job = kTrain + "--arch mlp --steps 1 --output " + file("run");
  ASSERT_TRUE(succeeds(job + " --models 3 --sweep 'lr~log(1e-3,1e-1)'"));
  put("run/model-2/checkpoints/step-1/notes.txt", "mine");
  expect_refused(job + " --force", {"model-2", "checkpoints/step-1/notes.txt", "stays"});
  EXPECT_TRUE(fs::exists(file("run/model-0/args.json")));
  expect_untouched();
}

// Without a sweep in the directory above it, model-1 is a run like any other.
TEST_F(ForeignFiles, ARunWithTheNameOfAModelOfASweepStays) {
  const std::string job = kTrain + "--arch mlp --output ";
  ASSERT_TRUE(succeeds(job + file("all/model-1") + " --steps 2"));
  keep("all/model-1");
  for (const char* options : {"", " --resume auto", " --force", " --simulate --force"}) {
    EXPECT_TRUE(succeeds(job + file("all") + " --steps 1" + options)) << options;
    expect_untouched();
  }
  expect_refused(job + file("all") + " --steps 1 --simulate --sweep lr=0.1,0.2", {"holds a run already"});
  // Nor is one of a model that the sweep has not.
  ASSERT_TRUE(succeeds(job + file("sweep") + " --steps 1 --sweep lr=0.1,0.2"));
  ASSERT_TRUE(succeeds(job + file("sweep/model-2") + " --steps 1"));
  keep("sweep/model-2");
  EXPECT_TRUE(succeeds(job + file("sweep") + " --steps 1 --force"));
  EXPECT_FALSE(fs::exists(file("sweep/model-1"))) << "of the sweep that was replaced";
  expect_untouched();
}

TEST_F(ForeignFiles, ACheckpointIsNoTargetForWeights) {
  make_inputs();
  const std::string weights = file("in/checkpoints/step-1/model.safetensors");
  ASSERT_TRUE(
      succeeds(kTandem + "convert-weights mlp --for cifar " + weights + " " + file("copy.safetensors")));
  keep("in/checkpoints");
  fs::create_symlink(weights, file("link.safetensors"));
  for (const std::string& target :
       {weights, file("link.safetensors"), file("in/checkpoints/step-1/optimizer.safetensors")})
    expect_refused(kTandem + "convert-weights mlp --for cifar " + file("copy.safetensors") + " " + target,
                   {target, "is a file of the checkpoint", "step-1", "stays"});
  expect_untouched();
}

// Also what Tandem wrote is not removed from a directory that is not known to hold a run.
TEST_F(ForeignFiles, ARunRemovesNothingThatItReads) {
  const std::string job = kTrain + "--arch mlp --steps 1 ",
                    pipeline = job + "--parallel pipeline --stages 2 ";
  ASSERT_TRUE(succeeds(pipeline + "--simulate --output " + file("predicted")));
  fs::create_directory(file("new"));
  fs::copy(file("predicted/plan.json"), file("new/plan.json"));
  keep("new");
  expect_refused(job + "--output " + file("new"), {"holds plan.json", "--force"});
  for (const char* force : {"", " --force"})
    expect_refused(pipeline + "--plan " + file("new/plan.json") + " --output " + file("new") + force,
                   {"--plan", "plan.json' is a file of --output"});
  expect_untouched();
  EXPECT_TRUE(succeeds(job + "--output " + file("new") + " --force"));
  ASSERT_TRUE(succeeds(job + "--models 2 --sweep 'lr=0.1,0.05' --output " + file("sweep")));
  foreign_.clear();
  keep("new");
  keep("sweep");
  for (const std::string from : {"new/checkpoints/step-1/model.safetensors", "sweep/model-0",
                                 "sweep/model-1/checkpoints/step-1/model.safetensors"})
    expect_refused(
        job + "--force --resume " + file(from) + " --output " + file(from.substr(0, from.find('/'))),
        {"--resume", "is in --output", "choose another directory"});
  expect_untouched();
}

// Weights of another program, of the same length, under a checkpoint's name.
TEST_F(ForeignFiles, WeightsPutIntoACheckpointStay) {
  const std::string job = kTrain + "--arch mlp --steps 2 --output " + file("run"),
                    weights = "run/checkpoints/step-2/model.safetensors";
  ASSERT_TRUE(succeeds(job));
  std::string others = read_file(file(weights));
  others.back() ^= 1;
  for (const std::string& text : {others, std::string("mine")}) {
    put(weights, text);
    expect_refused(job + " --force", {"step-2/model.safetensors", "changed since", "stays"});
    expect_untouched();
  }
}

// A run that goes on replaces a link, and not what it links to.
TEST_F(ForeignFiles, LinksToAnotherRunsFilesAreReplaced) {
  const std::string job = kTrain + "--arch mlp --resume auto --output ";
  ASSERT_TRUE(succeeds(job + file("one") + " --steps 1"));
  fs::copy(file("one"), file("two"), fs::copy_options::recursive);
  for (const auto& entry : fs::directory_iterator(file("one")))
    if (entry.is_regular_file()) {
      fs::remove(fs::path(file("two")) / entry.path().filename());
      fs::create_symlink(entry.path(), fs::path(file("two")) / entry.path().filename());
    }
  keep("one");
  EXPECT_TRUE(succeeds(job + file("two") + " --steps 2"));
  expect_untouched();
  EXPECT_EQ(2u, metrics("two").size());
}

// One run in each directory, whichever comes first. A run that gives up removes nothing that another uses.
TEST_F(ForeignFiles, OfRunsThatBeginAtOnceInOneDirectoryOneTrains) {
  for (int round = 0; round < 8; ++round) {
    const std::string directory = file(fmt::format("{}/a/b", round)), one = file("one"), two = file("two"),
                      three = file("three");
    std::string command;
    for (const std::string& name : {one, two, three})
      command += fmt::format("({}--arch mlp --steps 40 --output {} >{}.out 2>&1; echo $? >{}.status) & ",
                             kTrain, directory, name, name);
    run(command + "wait");
    int trained = 0;
    std::string said;
    for (const std::string& name : {one, two, three}) {
      const std::string text = read_file(name + ".out");
      said += text;
      if (read_file(name + ".status") == "0\n")
        ++trained;
      else
        EXPECT_TRUE(text.find("another run is writing there") != std::string::npos ||
                    text.find("holds a run already") != std::string::npos)
            << text;
    }
    EXPECT_EQ(1, trained) << said;
    EXPECT_TRUE(fs::exists(directory + "/checkpoints/step-40/model.safetensors")) << said;
  }
}

TEST_F(ForeignFiles, CheckpointsBehindALinkAreOfAnotherRun) {
  const std::string job = kTrain + "--arch mlp --steps 2 --output ";
  ASSERT_TRUE(succeeds(job + file("run")));
  ASSERT_TRUE(succeeds(job + file("other")));
  fs::remove_all(file("run/checkpoints"));
  fs::create_directory_symlink(file("other/checkpoints"), file("run/checkpoints"));
  expect_refused(job + file("run") + " --force", {"checkpoints/step-2 behind a link", "stays"});
  EXPECT_TRUE(fs::exists(file("other/checkpoints/step-2/model.safetensors")));
  // A directory for checkpoints elsewhere is used.
  fs::remove(file("run/checkpoints"));
  fs::create_directory(file("large disk"));
  fs::create_directory_symlink(file("large disk"), file("run/checkpoints"));
  EXPECT_TRUE(succeeds(job + file("run") + " --force"));
  EXPECT_TRUE(succeeds(job + file("run") + " --steps 3 --resume auto"));
  EXPECT_TRUE(fs::exists(file("large disk/step-3")));
}

TEST_F(ForeignFiles, LinksAndUnfinishedNamesOfOthersStay) {
  make_inputs();
  const std::string program = file("predicted/program.json");
  put("precious.txt", "mine");
  put("run/notes.tandem-tmp", "mine");
  ASSERT_TRUE(succeeds(kTrain + "--arch mlp --steps 1 --output " + file("run")));
  fs::create_symlink(file("gone.json"), file("link.json"));
  expect_refused(kTandem + "plan memory --graph none.json --limit 1MB --trace " + file("link.json"),
                 {"none.json"});
  EXPECT_TRUE(fs::is_symlink(file("link.json")));
  EXPECT_FALSE(fs::exists(file("gone.json")));
  // The name under which a process writes has its number, which exec keeps.
  EXPECT_EQ(0,
            run("sh -c 'ln -s " + file("precious.txt") + " " + file("trace.json") + ".$$.tandem-tmp; exec " +
                kTandem + "sim " + program + " --trace " + file("trace.json") + "'")
                .status);
  EXPECT_FALSE(fs::is_symlink(file("trace.json")));
  put("weights.safetensors", std::string("\x10\0\0\0\0\0\0\0{\"a\": \"of others\"}", 26));
  expect_refused(kTandem + "convert-weights mlp " + file("in/checkpoints/step-1/model.safetensors") + " " +
                     file("weights.safetensors"),
                 {"weights.safetensors", "stays"});
  for (const std::string taken : {"new/metrics.jsonl", "new/checkpoints", "new/model-0/args.json"})
    expect_refused(kTrain + "--arch mlp --steps 1 --output " + file("new") + " --trace " + file(taken),
                   {"--trace", "another file of the run"});
  expect_untouched();
}

TEST_F(ForeignFiles, ATraceReplacesATraceAlone) {
  make_inputs();
  const std::string program = file("predicted/program.json"), before = read_file(program);
  put("shopping.json", "[\"milk\"]");
  const auto refused = [&](const std::string& command, const std::string& into) {
    expect_refused(command + " --trace " + into, {"--trace", into, "stays"});
  };
  for (const std::string& into : {file("shopping.json"), program, file("in/args.json")}) {
    refused(kTandem + "sim " + program, into);
    refused(kTandem + "sim pipeline --profile " + file("predicted/stages.json"), into);
    refused(kTrain + "--arch mlp --steps 1", into);
  }
  EXPECT_EQ(before, read_file(program));
  expect_untouched();
  for (int twice = 0; twice < 2; ++twice)
    EXPECT_TRUE(succeeds(kTandem + "sim " + program + " --trace " + file("own.json")));
  EXPECT_EQ("tandem trace", read("own.json").at("format"));
  expect_refused(
      kTrain + "--arch mlp --steps 1 --output " + file("new") + " --trace " + file("new/args.json"),
      {"args.json"});
}

TEST_F(ForeignFiles, OfTwoHundredRandomCommandsNoneTouchesThem) {
  make_inputs();
  const std::uint64_t seed = run_seed();
  std::mt19937_64 random(seed);
  SCOPED_TRACE("seed " + std::to_string(seed));
  const auto pick = [&](const std::vector<std::string>& of) { return of[random() % of.size()]; };
  const auto chance = [&](unsigned percent) { return random() % 100 < percent; };
  const std::vector<std::string> directories{"a", "b", "c", "d", "e"};
  std::vector<std::string> names = kOfRuns;
  for (const char* name : {"profile.json",
                           "program.json",
                           "stages.json",
                           "layers.json",
                           "all-reduce.json",
                           "all-reduce-2.json",
                           "collectives-1.jsonl",
                           "test_batch.bin",
                           "data_batch_2.bin",
                           "batches.meta.txt",
                           "drawn.xxh3",
                           "data_batch_1.bin.tmp",
                           "checkpoints/step-1/model.pt",
                           "checkpoints/step-2.tandem-tmp/x",
                           "checkpoints/step-1.tandem-old/y",
                           "checkpoints/best.pt",
                           "model-0/args.json",
                           "model-1/notes.txt",
                           "model-0/checkpoints/step-1/z",
                           "events.out.tfevents.1.host",
                           "metrics.jsonl.tandem-tmp",
                           "summary.csv.tandem-tmp",
                           "w.safetensors",
                           "out.json",
                           "notes.txt",
                           "index.html",
                           "fig1.csv"})
    names.emplace_back(name);
  const std::vector<std::string> texts{
      "mine", "{}", "{\"a\": 1}\n", "of,epoch\n1,2\n", "\n", "# config\nlr = 1\n", std::string("\0\1\2", 3)};
  // Some directories hold a run, too.
  for (const char* d : {"a", "b"})
    ASSERT_TRUE(succeeds(kTrain + "--arch mlp --steps 1 --trace --output " + file(d)));
  const auto is_free = [&](const std::string& name) {
    return !fs::exists(file(name)) && !fs::is_regular_file(fs::path(file(name)).parent_path());
  };
  const auto is_editable = [&](const std::string& name) {
    const std::string extension = fs::path(name).extension();
    return fs::is_regular_file(file(name)) && name.find("checkpoints") == name.npos &&
           (extension == ".json" || extension == ".csv" || extension == ".toml" ||
            name.ends_with("metrics.jsonl"));
  };
  int ran = 0, refused = 0;
  for (int i = 0; i < 200; ++i) {
    if (const std::string name = pick(directories) + "/" + pick(names); chance(30) && is_free(name))
      put(name, pick(texts));
    if (const std::string name = pick(directories) + "/" + pick(names); chance(30) && is_editable(name))
      put(name, read_file(file(name)) + (name.ends_with(".json") ? " \n" : "mine\n"));
    const std::string directory = file(pick(directories)), into = file(pick(directories) + "/" + pick(names)),
                      force = chance(60) ? " --force" : "", program = file("predicted/program.json");
    fs::create_directories(fs::path(into).parent_path());
    std::string command;
    switch (random() % 8) {
      case 0: command = kTrain + "--arch mlp --steps 1 --output " + directory + force; break;
      case 1:
        command = kTrain + "--arch mlp --steps 1 --output " + directory + force +
                  (chance(50) ? " --trace" : " --trace " + into) + (chance(30) ? " --tensorboard 0" : "");
        break;
      case 2: command = kTrain + "--arch mlp --steps 2 --simulate --output " + directory + force; break;
      case 3:
        command = kTrain + "--arch mlp --steps 1 --sweep lr=0.1,0.01 --output " + directory + force;
        break;
      case 4:
        command = kTrain + "--arch mlp --steps 2 --checkpoint-every 1 --resume auto --output " + directory;
        break;
      case 5:
        command = chance(50)
                      ? kTandem + "sim " + program + " --batches 2 --trace " + into
                      : kTandem + "sim pipeline --batches 4 --profile " + file("predicted/stages.json") +
                            " --schedule gpipe --write-schedule " + into;
        break;
      case 6: command = kTandem + "make-data cifar10 " + directory + " --train 5 --test 5" + force; break;
      default:
        command = chance(50) ? kTandem + "plan pipeline --profile " + file("predicted/layers.json") +
                                   " --stages 2 --schedule gpipe --output " + into
                             : kTandem + "convert-weights mlp " +
                                   file("in/checkpoints/step-1/model.safetensors") + " " + into;
    }
    const Ended e = run(command);
    ASSERT_TRUE(e.status == 0 || e.status == 1) << command << "\n" << e.status << e.err;
    ++(e.status == 0 ? ran : refused);
    expect_untouched();
    if (HasFatalFailure()) FAIL() << "after " << command;
  }
  EXPECT_GT(ran, 15) << "most commands were refused, for another reason";
  EXPECT_GT(refused, 20) << "too few foreign files stood in the way";
}

}  // namespace
}  // namespace tandem::testing
