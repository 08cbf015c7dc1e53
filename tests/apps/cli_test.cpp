// The programs as a user sees them: bad input ends with one clear line and status 1.
#include <algorithm>
#include <map>
#include <regex>
#include <set>

#include <fmt/format.h>

#include "cli.h"

namespace tandem::testing {
namespace {

namespace fs = std::filesystem;

TEST_F(Cli, RefusesBadFlags) {
  expect_refused(kTrain + "--bogus 3", {"unknown flag '--bogus'", "train_cifar --help"});
  expect_refused(kTrain + "--schedul gpipe", {"'--schedul'", "perhaps --sched or --schedule"});
  expect_refused(kTrain + "--rank=2", {"'--rank=2'", "perhaps --ranks"});
  expect_refused(kTrain + "--learning-rate 0.1", {"'--learning-rate'", "perhaps --lr"});
  expect_refused(kTrain + "--model vgg16", {"perhaps --models or --arch"});
  expect_refused(kTrain + "more", {"'more' is not expected", "--help"});
  expect_refused(kTrain + "--lr fast", {"--lr", "fast", "--help"});
  expect_refused(kTandem + "sim p.json --batch 3", {"'--batch'", "perhaps --batches", "tandem sim --help"});
  expect_refused(kTandem, {"tandem needs a command: make-data, ", "tandem --help"});
  expect_refused(kTandem + "plan", {"tandem plan needs a command: all-reduce, ", "tandem plan --help"});
  expect_refused(kTandem + "plan --json", {"tandem plan needs a command before '--json': all-reduce"});
  expect_refused(kTandem + "plan memroy",
                 {"'memroy'", "those of tandem plan are: all-reduce, pipeline, memory"});
  expect_refused(kTandem + "sim pipeline --profile --schedule",
                 {"--profile needs a value", "tandem sim pipeline --help"});
  expect_refused(kTandem + "sim pipeline --profile p.json --chunks", {"--chunks needs a value"});
  expect_refused(kTrain + "--arch --steps 3", {"--arch needs a value", "train_cifar --help"});
  expect_refused(kTrain + "--arch foo", {"foo", "mlp", "mlp-residual", "convnet"});
  expect_refused(kTrain + "--schedule zz", {"zz", "gpipe", "1f1b", "pipedream", "dualpipe"});
  expect_refused(kTrain + "--transport smoke", {"smoke", "threads", "mpi"});
  expect_refused(kTrain + "--parallel both", {"both", "none", "data", "pipeline"});
  expect_refused(kTrain + "--batch-size 0", {"--batch-size 0", "at least 1"});
  expect_refused(kTrain + "--batch-size 6400", {"6400", "training set of 640 images"});
  expect_refused(kTrain + "--synthetic-train 0", {"--synthetic-train 0", "at least 1"});
  expect_refused(kTrain + "--synthetic-test 0", {"--synthetic-test 0", "at least 1"});
  expect_refused(kTrain + "--print-freq 0", {"--print-freq 0", "at least 1"});
  expect_refused(kTrain + "--lr -1", {"--lr -1", "at least 0"});
  expect_refused(kTrain + "-b 30 --parallel data --ranks 4",
                 {"30", "4 ranks", "28 or 32; the last batch", "--drop-last"});
  expect_refused(kTrain + "-b 64 --microbatches 3", {"64", "3 micro-batches", "63 or 66;"});
  expect_refused(kTrain + "-b 15 --microbatches 16 --drop-last",
                 {"15", "16 micro-batches", "the nearest multiple is 16\n"});
  expect_refused(kTrain + "--lr 0.1,0.2 --models 3", {"--lr", "2 values for 3 models"});
  expect_refused(kTrain + "--opt adam --betas 0.9",
                 {"--betas: there must be two, each in [0, 1), not 0.9\n"});
  expect_refused(kTrain + "--opt adam --betas 0.9,0.99,0.999",
                 {"--betas: there must be two", "not 0.9,0.99,0.999"});
  expect_refused(kTrain + "--memory-budget lots", {"lots", "MiB"});
  expect_refused(kTrain + "--memory-budget 0", {"--memory-budget: '0'", "at least 1 byte"});
  expect_refused(kTrain + "--link fast", {"fast", "GB/s", "us"});
  expect_refused(kTrain + "--stages 2 --parallel data", {"--stages 2", "pipeline"});
}

TEST_F(Cli, ReadsOnlyDecimalNumbers) {
  for (const std::string text : {"99999999999999999999", "-1", "0x10", "1.5", "1,,2", ",1", "1,"})
    expect_refused(kTrain + "--seed " + text,
                   {"--seed: '", "is no whole number from 0 to 18446744073709551615"});
  for (const std::string text : {"99999999999999999999", "1e3", "0x10", "1.5", "12x"})
    expect_refused(kTrain + "--steps=" + text, {"--steps: '" + text + "' is no whole number"});
  for (const std::string text : {"inf", "nan", "1e400", "0x1p-3", "0.1,,0.2", "0.1,"})
    expect_refused(kTrain + "--lr " + text, {"--lr: '", "is no finite decimal number"});
  expect_refused(kTrain + "--momentum inf", {"--momentum: 'inf'"});
  for (const std::string text :
       {"inf", "nan", "1e30", "0x10MB", "1e400", "-1MB", "2000000GB", "2E", "1.5.2GB", "0lots", "G", "1_0K"})
    expect_refused(kTrain + "--memory-budget " + text,
                   {"--memory-budget: '" + text + "' is no amount of memory", "1000000 GB"});
  expect_refused(kTrain + "--ranks 99999999999", {"--ranks", "99999999999", "at most 2147483647"});
  expect_refused(kTandem + "sim p.json --batches 1.5", {"--batches: '1.5'", "tandem sim --help"});
  ASSERT_EQ(0,
            run(kTrain + "--steps 010 --seed 18446744073709551615,007 --lr 1e-3,.5 --output " + file("run"))
                .status);
  const nlohmann::json args = read("run/args.json");
  EXPECT_EQ(10, args.at("steps"));
  EXPECT_EQ((std::vector<std::uint64_t>{18446744073709551615u, 7}), args.at("seed"));
  EXPECT_EQ((std::vector<double>{1e-3, 0.5}), args.at("lr"));
}

// A resume does not compare flags that are missing in args.json.
TEST_F(Cli, ArgsContainEveryFlagThatARunDependsOn) {
  const Ended help = run(kTrain + "--help");
  ASSERT_TRUE(succeeds(kTrain + "--steps 1 --output " + file("run")));
  const nlohmann::json args = read("run/args.json");
  const std::map<std::string, std::string> renamed{{"opt", "optimizer"}, {"wd", "weight_decay"}};
  const std::set<std::string> beside{"help",  "version",    "config",   "output",
                                     "force", "print-freq", "log-level"};
  const std::regex flag("\n +(?:-[a-z],)?--([a-z-]+)");
  int flags = 0;
  for (std::sregex_iterator it(help.out.begin(), help.out.end(), flag), end; it != end; ++it) {
    std::string name = (*it)[1];
    if (beside.contains(name)) continue;
    if (const auto other = renamed.find(name); other != renamed.end()) name = other->second;
    std::replace(name.begin(), name.end(), '-', '_');
    EXPECT_TRUE(args.contains(name)) << name;
    ++flags;
  }
  EXPECT_GT(flags, 40);
}

TEST_F(Cli, RefusesNumbersOutOfRange) {
  for (const std::string flag : {"--models", "--ranks", "--stages", "--microbatches"})
    expect_refused(kTrain + flag + " 1000000000", {flag + " 1000000000: must be at most 10000"});
  for (const std::string flag : {"--batch-size", "--synthetic-train", "--synthetic-test"})
    expect_refused(kTrain + flag + " 4000000000000000000",
                   {flag + " 4000000000000000000: must be at most 10000000"});
  expect_refused(kTrain + "--threads 1000000", {"--threads 1000000: must be at most 1024"});
  expect_refused(kTrain + "--ranks 500 -b 1000 --synthetic-train 1000",
                 {"--ranks 500", "500 ranks", "at most 256", "mpirun"});
  expect_refused(kTrain + "--epochs 2000000000", {"--epochs 2000000000: must be at most 1000000"});
  expect_refused(kTrain + "--steps 9223372036854775807", {"--steps 9223372036854775807: must be at most"});
  expect_refused(kTrain + "--simulate --steps 100000000",
                 {"--steps 100000000", "to simulate", "instructions per batch"});
  expect_refused(kTrain + "--simulate -b 6400", {"--batch-size 6400", "640 images"});
  const std::string sim =
      kTandem + "sim " + write("p.json", R"({"lanes": [{}], "instructions": [{"name": "A"}]})");
  expect_refused(sim + " --batches 0", {"--batches 0", "at least 1"});
  for (const std::string batches : {"10000001", "9223372036854775807"})
    expect_refused(sim + " --batches " + batches,
                   {"--batches " + batches, "at most 10000000 to simulate 1 instruction per batch"});
}

TEST_F(Cli, RefusesEmptyValues) {
  for (const std::string flag : {"--output", "--plan", "--trace", "--link", "--data", "--transport",
                                 "--memory-budget", "--lr", "--seed", "--steps", "--arch"})
    expect_refused(kTrain + flag + " ''", {flag + ": an empty value"});
  expect_refused(kTandem + "sim ''", {"file: an empty value"});
}

TEST_F(Cli, RefusesOptionsWithoutEffect) {
  expect_refused(kTrain + "--link 1GB/s", {"--link", "no effect", "one rank", "--parallel"});
  expect_refused(kTrain + "--parallel data --ranks 1 --link 1GB/s", {"--link", "no effect", "one rank"});
  expect_refused(kTrain + "--schedule gpipe", {"--schedule", "no effect", "--parallel pipeline"});
  expect_refused(kTrain + "--parallel data --schedule 1f1b", {"--schedule", "no effect"});
  expect_refused(kTrain + "--profile p.json", {"--profile", "no effect", "--simulate"});
  expect_refused(kTrain + "--force", {"--force", "no effect", "--output"});
  expect_refused(kTrain + "--data " + file("real"), {"--synthetic-train", "no effect", file("real")});
}

TEST_F(Cli, RefusesUnwritableOutputsBeforeTraining) {
  const std::string absent = file("absent") + "/t.json";
  for (const std::string& command : {kTrain + "--epochs 100000 --trace ", kTrain + "--simulate --trace "}) {
    expect_refused(command + absent, {"--trace", absent, "No such file"});
    expect_refused(command + file("."), {"--trace", file("."), "Is a directory"});
  }
  expect_refused(kTrain + "--epochs 100000 --output " + write("file", "x"), {"--output", file("file")});
  const std::string program = write("p.json", R"({"lanes": [{}], "instructions": [{"name": "A"}]})");
  expect_refused(kTandem + "sim " + program + " --trace " + absent, {"--trace", absent});
  expect_refused(kTrain + "--trace " + file("t.json") + " --memory-budget 1", {"budget"});
  EXPECT_FALSE(fs::exists(file("t.json"))) << "a check of the output leaves no file";
}

TEST_F(Cli, RefusesToReplaceARunUnlessForced) {
  const std::string train = kTrain + "--steps 2 --output " + file("run");
  ASSERT_TRUE(succeeds(train));
  ASSERT_TRUE(succeeds(kTrain + "--simulate --force --output " + file("run")));
  EXPECT_FALSE(fs::exists(file("run/metrics.jsonl"))) << "the replaced run's metrics are removed";
  expect_refused(train, {"--output", file("run"), "args.json", "--force"});
  EXPECT_EQ(true, read("run/args.json").at("simulate"));
  EXPECT_TRUE(succeeds(train + " --force"));
  EXPECT_EQ(false, read("run/args.json").at("simulate"));
  EXPECT_FALSE(fs::exists(file("run/profile.json")));
}

TEST_F(Cli, RefusesToReplaceDataUnlessForced) {
  const std::string make = kTandem + "make-data cifar10 " + file("data") + " --test 5 --train ";
  ASSERT_TRUE(succeeds(make + "5"));
  expect_refused(make + "10", {file("data"), ".bin", "force the replacement"});
  EXPECT_EQ(3073, fs::file_size(file("data/data_batch_1.bin")));
  EXPECT_TRUE(succeeds(make + "10 --force"));
  EXPECT_EQ(2 * 3073, fs::file_size(file("data/data_batch_1.bin")));
}

TEST_F(Cli, SaysHowMuchMemoryTheWeightsOfTooManyModelsTake) {
  expect_refused(kTrain + "--arch vgg16 --models 10000 --steps 1",
                 {"out of memory: the weights of 10000 models take 1.35e+03 GB, and ", " GB are free"});
}

TEST_F(Cli, SaysHowMuchMemoryTooManyImagesTake) {
  const Ended e = run("(ulimit -v 6000000; " + kTrain + "--arch mlp --steps 1 --synthetic-train 10000000)");
  EXPECT_EQ(1, e.status);
  std::smatch found;
  ASSERT_TRUE(std::regex_search(
      e.err, found, std::regex("out of memory: 10000000 images take 30.7 GB, and ([0-9.]+) GB are free")))
      << e.err;
  EXPECT_LT(std::stod(found[1]), 6e6 * 1024 / 1e9);
}

TEST_F(Cli, AnInterruptedMakeDataLeavesNothing) {
  for (const char* signal : {"INT", "TERM", "HUP", "USR1"}) {
    const Ended e = run(fmt::format("timeout --preserve-status -s {} 0.3 {}make-data cifar10 {}", signal,
                                    kTandem, file(signal)));
    EXPECT_GT(e.status, 128) << signal;
    expect_words(e.err, {"interrupted; nothing was written"});
    EXPECT_TRUE(fs::is_empty(file(signal))) << signal;
  }
}

// A kill while files take their places leaves some of the new ones, and a list of old and new checksums.
TEST_F(Cli, AHalfReplacedSetOfDrawnImagesIsReplaced) {
  const std::string make = kTandem + "make-data cifar10 --train 10 --test 5 --seed ", list = "old/drawn.xxh3";
  for (const char* seed : {"1 ", "2 "})
    ASSERT_TRUE(succeeds(make + seed + file(seed[0] == '1' ? "old" : "new")));
  EXPECT_EQ(7, std::ranges::count(read_file(file(list)), '\n'));
  std::filesystem::copy_file(file("new/data_batch_1.bin"), file("old/data_batch_1.bin"),
                             std::filesystem::copy_options::overwrite_existing);
  expect_refused(make + "3 --force " + file("old"), {"data_batch_1.bin was not drawn here"});
  write(list, read_file(file(list)) + read_file(file("new/drawn.xxh3")));
  EXPECT_TRUE(succeeds(make + "3 --force " + file("old")));
  EXPECT_EQ(7, std::ranges::count(read_file(file(list)), '\n')) << "without the earlier checksums";
}

TEST_F(Cli, TrainsModelsInArrays) {
  const std::string train = kTrain + "--arch convnet -b 16 --steps 3 --threads 1 --models 3 ";
  const auto losses = [&](const std::string& flags) {
    const Ended r = run(train + flags);
    EXPECT_EQ(0, r.status) << flags << r.err;
    const std::size_t at = r.out.find("train loss");
    return r.out.substr(at, r.out.find("  ", at + 12) - at);
  };
  const std::string together = losses("--arrays 3");
  EXPECT_NE(together, "");
  for (const char* flags : {"--arrays 2,1", "--arrays 1,1,1", "--arrays 2,1 --array-ring",
                            "--arrays 1,1,1 --array-ring", "--arrays 1,1,1 --array-lanes 2"})
    EXPECT_EQ(together, losses(flags)) << flags;
  const Ended simulated = run(train + "--memory-budget 1GB --simulate");
  expect_words(simulated.out + simulated.err, {"(2, 1)", "(3)", "(2) (1)", "(1) (1) (1)"});
  const Ended paper = run(train + "--memory-budget 1GB --memory-plan mu-two --simulate");
  expect_words(paper.out + paper.err, {"(2, 1)", "(3)", "3 models in arrays of"});
  EXPECT_EQ(std::string::npos, paper.out.find("(2) (1)"));
  expect_refused(train + "--arrays 2,2", {"--arrays", "4 models together", "--models is 3"});
  expect_refused(train + "--array-lanes 2", {"--array-lanes has no effect without --arrays"});
  expect_refused(train + "--arrays 1,1,1 --array-ring --array-lanes 2",
                 {"a ring of arrays has one compute lane"});
  for (const char* stages : {"--parallel pipeline --stages 2", "--microbatches 2"})
    expect_refused(train + "--arrays 1,1,1 --array-ring " + stages,
                   {"several arrays of models", "one stage and one micro-batch"});
}

TEST_F(Cli, RefusesImpossiblePlans) {
  const std::pair<std::string, std::string> sizes[] = {
      {"1MB", "1000000"}, {"1.5KiB", "1536"},    {"64K", "64000"}, {"64kb", "64000"},
      {"64Ki", "65536"},  {"0.001G", "1000000"}, {"1e3", "1000"},  {"1000B", "1000"}};
  for (const auto& [size, bytes] : sizes)
    expect_refused(kTrain + "--memory-budget " + size,
                   {" " + bytes + " bytes is too small", "smallest budget that works"});
  expect_refused(kTrain + "--parallel pipeline --stages 40", {"impossible cut", "40 stages", "head"});
  const std::string pipeline = kTrain + "--parallel pipeline --stages 2 --plan ";
  expect_refused(pipeline + write("unknown.json", R"({"cuts": ["block9"]})"),
                 {"impossible cut", "no module 'block9'", "block0, block1"});
  expect_refused(kTrain + "--parallel pipeline --stages 3 --plan " +
                     write("first-unknown.json", R"({"cuts": ["block9", "block0"]})"),
                 {"impossible cut", "no module 'block9'"});
  expect_refused(pipeline + write("inner.json", R"({"cuts": ["block1.none.first"]})"),
                 {"no module 'block1.none.first'", "the modules are: block1.first"});
  expect_refused(pipeline + write("first.json", R"({"cuts": ["stem"]})"),
                 {"impossible cut", "stem", "stage 0"});
  expect_refused(pipeline + write("many.json", R"({"cuts": ["block1", "block2"]})"),
                 {"2 stages takes 1 cut, the plan gives 2"});
  expect_refused(kTrain + "--parallel pipeline --stages 3 --plan " +
                     write("order.json", R"({"cuts": ["block2", "block1"]})"),
                 {"impossible cut", "'block1' is reached before 'block2'"});
  expect_refused(kTrain + "--plan " + write("key.json", R"({"cutz": []})"), {"cutz", "cuts"});
  expect_refused(kTrain + "--plan " + write("text.json", "{"),
                 {"text.json", "not valid JSON at line 1, column 2", "string literal"});
  expect_refused(kTrain + "--plan " + file("absent.json"), {"absent.json", "cannot be read"});
  expect_refused(kTrain + "--plan " + file("."), {"plan '" + file("."), "Is a directory"});
  expect_refused(kTrain + "--plan " + write("array.json", "[]"),
                 {"array.json", "the top level is []; an object"});
  expect_refused(kTrain + "--plan " + write("null.json", "null"),
                 {"null.json", "the top level is null; an object"});
  expect_refused(kTrain + "--plan " + write("twice.json", R"({"swap": ["block0"], "swap": []})"),
                 {"twice.json", "\"swap\" is given twice"});
  expect_refused(kTrain + "--plan " + write("type.json", R"({"swap": "block0"})"),
                 {"type.json", "\"swap\" is \"block0\"; an array"});
  expect_refused(kTrain + "--plan " + write("item.json", R"({"fusion_groups": [["a"], "b"]})"),
                 {"item.json", "\"fusion_groups\": [1] is \"b\"; an array"});
  expect_refused(
      kTrain + "--plan " + write("r.json", R"({"fusion_groups": [{"parameters": ["a"], "threads": 0}]})"),
      {"r.json", "\"threads\" is 0"});
  expect_refused(kTrain + "--plan " + write("r.json", R"({"fusion_groups": [{"threads": 2}]})"),
                 {"r.json", "\"parameters\""});
  const std::string profile = kTrain + "--simulate --profile ";
  expect_refused(profile + file("."), {"profile '" + file("."), "Is a directory"});
  expect_refused(profile + write("costs.json", R"({"relu": "1"})"),
                 {"costs.json", "\"relu\" is \"1\"; a number"});
  expect_refused(profile + write("costs.json", R"({"relu": -1})"),
                 {"costs.json", "\"relu\" is -1; a number"});
  expect_refused(profile + write("costs.json", R"({"a": 1, "a": 2})"),
                 {"costs.json", "\"a\" is given twice"});
  expect_refused(kTrain + "--plan " + write("swap.json", R"({"swap": ["attic"]})"),
                 {"attic", "names no activation", "block0 relu"});
  expect_refused(kTrain + "--arch convnet --plan " + file("swap.json"),
                 {"block0 max_pool2d", "head matmul, reduce\n"});
  expect_refused(
      kTrain + "--plan " + write("both.json", R"({"swap": ["block0 relu"], "recompute": ["block0"]})"),
      {"'block0 relu' cannot be swapped", "recomputed already"});
  expect_refused(kTrain + "--plan " + write("all.json", R"({"swap": ["attic"], "recompute": ["*"]})"),
                 {"'attic'"});
  expect_refused(kTrain + "--plan " + write("alone.json", R"({"fusion_groups": [["head.weight"]]})"),
                 {"fusion_groups", "no effect", "several replicas"});
  expect_refused(kTrain + "--plan " + write("cut.json", R"({"cuts": ["block1"]})"), {"1 stage takes 0 cuts"});
  expect_refused(kTrain + "--parallel data --ranks 2 --plan " +
                     write("group.json", R"({"fusion_groups": [["nobody.weight"]]})"),
                 {"nobody.weight"});
}

TEST_F(Cli, RefusesBadData) {
  const std::string train = TANDEM_BIN "/train_cifar --data ";
  expect_refused(train + file("nowhere"), {"nowhere"});
  fs::create_directory(file("empty"));
  expect_refused(train + file("empty"), {"empty"});
  const auto data_with = [&](const std::string& name, const std::string& bytes) {
    fs::create_directory(file(name));
    for (const char* f : {"data_batch_1.bin", "test_batch.bin"}) write_file(file(name) + "/" + f, bytes);
    return train + file(name);
  };
  expect_refused(data_with("short", std::string(3072, '\0')), {"data_batch_1.bin", "3072"});
  expect_refused(data_with("long", std::string(3074, '\0')), {"data_batch_1.bin", "3074"});
  expect_refused(data_with("label", std::string(1, '\x0b') + std::string(3072, '\0')),
                 {"data_batch_1.bin", "label", "11"});
}

TEST_F(Cli, NamesStepAndModuleOfANonFiniteLoss) {
  expect_refused(kTrain + "--lr 1e12 --steps 20", {"nan at step ", "module 'block"});
  expect_refused(kTrain + "--lr 1e12 --steps 20 --parallel data --ranks 2",
                 {"nan at step ", "module 'block"});
  expect_refused(kTrain + "--lr 0.01,1e12 --on-nan stop --steps 20", {"of model 1", "nan at step "});
}

TEST_F(Cli, RefusesBadPrograms) {
  const auto program = [&](const std::string& steps) {
    return kTandem + "verify " +
           write("p.json",
                 R"({"devices": 2, "lanes": [{"device": 0}, {"device": 0, "kind": "send", "index": 1},
      {"device": 1, "kind": "receive", "index": 0}, {"device": 1}], "instructions": [)" +
                     steps + "]}");
  };
  expect_refused(
      program(
          R"({"name": "A", "reads": ["b"], "writes": ["a"]}, {"name": "B", "reads": ["a"], "writes": ["b"]})"),
      {"cycle", "'A'", "'B'"});
  expect_refused(program(R"({"name": "A", "reads": ["x"]})"), {"missing value", "'x'"});
  expect_refused(
      program(R"({"name": "s1", "lane": 1, "channel": "p"}, {"name": "s2", "lane": 1, "channel": "q"},
                            {"name": "r2", "lane": 2, "channel": "q"}, {"name": "r1", "lane": 2, "channel": "p"})"),
      {"deadlock", "s1", "r2"});
  expect_refused(program(R"({"name": "A", "lane": 9})"), {"lane 9"});
  expect_refused(program(R"({"name": "A", "lag": 2000000000})"), {"lag 2000000000"});
  const std::string lanes =
      R"({"devices": 1, "lanes": [{}], "instructions": [{"name": "A", "reads": ["w@1"]}], "states": {"w": )";
  expect_refused(kTandem + "sim " + write("s.json", lanes + R"({"bytes": -576}}})"),
                 {"'w'", "\"bytes\" is -576"});
  for (const char* state : {R"({"slots": 0})", R"({"slots": -3})", R"({"device": 5})"})
    expect_refused(kTandem + "sim " + write("s.json", lanes + state + "}}"), {"'w'", "the device below 1"});
  expect_refused(program(R"({"name": "A", "color": 1})"), {"color"});
  expect_refused(program(R"({"name": "A"}, {"name": "A"})"), {"two instructions", "'A'"});
  expect_refused(kTandem + "verify " + write("q.json", "[\n1 2]"),
                 {"not valid JSON at line 2, column 3", "expected ']'"});
  expect_refused(kTandem + "sim " + file("absent.json"), {"absent.json"});
}

TEST_F(Cli, SummarizesNetworksForTheirPurposes) {
  const auto summary = [&](const std::string& options) {
    const Ended e = run(kTandem + "summary " + options + " --json");
    EXPECT_EQ(0, e.status) << e.err;
    return nlohmann::json::parse(e.out);
  };
  EXPECT_EQ(269'722, summary("resnet20").at("parameters"));
  const auto resnet = summary("resnet18 --for imagenet -b 2");
  EXPECT_EQ("imagenet", resnet.at("for"));
  EXPECT_EQ(11'689'512, resnet.at("parameters"));
  EXPECT_NEAR(2 * 2 * 1.82e9, resnet.at("flops").get<double>(), 0.1e9) << "1.82 G multiply-adds an image";
  double flops = 0;
  for (const auto& m : resnet.at("modules")) flops += m.at("flops").get<double>();
  EXPECT_NEAR(flops, resnet.at("flops").get<double>(), 1);
  EXPECT_GT(resnet.at("activation_bytes"), 0);
  const Ended clicks = run(kTandem + "summary dlrm --for clicks");
  EXPECT_NE(std::string::npos, clicks.out.find("dlrm for clicks, on f32[1, 13], i32[1, 26, 1]"))
      << clicks.out;
  EXPECT_NE(std::string::npos, clicks.out.find("39155841")) << clicks.out;
  expect_refused(kTandem + "summary gpt2 --for imagenet", {"'gpt2'", "imagenet", "vit_b_16"});
  expect_refused(kTandem + "summary gpt2 --for speech", {"speech", "clicks"});
}

}  // namespace
}  // namespace tandem::testing
