// tandem plan pipeline: what it prints, and what it refuses.
#include <regex>

#include <fmt/format.h>

#include "cli.h"

namespace tandem::testing {
namespace {

using nlohmann::json;

// F and B of six layers, in ms.
constexpr std::pair<int, int> kMs[] = {{1, 2}, {2, 2}, {1, 3}, {3, 6}, {1, 1}, {2, 4}};

json layers() {
  json layers = json::array();
  for (const auto& [forward, backward] : kMs)
    layers.push_back({{"name", fmt::format("layer{}", layers.size())},
                      {"forward_ms", forward},
                      {"backward_ms", backward},
                      {"activation_bytes", 1000},
                      {"resident_bytes", 5000},
                      {"weight_bytes", 400}});
  return {{"layers", layers}};
}

class CliPlanPipeline : public Cli {
 protected:
  std::string command(const std::string& options, const json& profile = layers()) const {
    return kTandem + "plan pipeline --profile " + write("layers.json", profile.dump()) + " " + options;
  }
  json planned(const std::string& options) const {
    const Ended e = run(command(options + " --json"));
    EXPECT_EQ(0, e.status) << e.err;
    return e.status == 0 ? json::parse(e.out) : json();
  }
};

// By hand: F + B of the layers is 3, 4, 4, 9, 2, 6.
TEST_F(CliPlanPipeline, PrintsTheCutsWithTheShortestPeriod) {
  const json dual = planned("--stages 3 --schedule dualpipe");
  EXPECT_EQ(json({"layer3", "layer4"}), dual.at("cuts"));
  EXPECT_NEAR(11, dual.at("period_ms"), 1e-9);
  EXPECT_NEAR(11, dual.at("simulated_ms"), 1e-9);
  EXPECT_NEAR(28.0 / 11, dual.at("speedup"), 1e-9);
  const json& first = dual.at("stages").at(0);
  EXPECT_EQ("layer0", first.at("first"));
  EXPECT_EQ("layer2", first.at("last"));
  EXPECT_NEAR(4, first.at("forward_ms"), 1e-9);
  EXPECT_NEAR(7, first.at("backward_ms"), 1e-9);
  EXPECT_EQ(5, first.at("in_flight"));
  EXPECT_EQ(1, first.at("weight_versions"));
  EXPECT_NEAR(5 * 3 * 5000 + 3 * 3 * 400 + 2 * 1000 + (2 + 3) * 1000, first.at("memory_bytes"), 1e-6)
      << "activations; weights, gradient, momentum; between two layers; values and gradients that cross";
}

TEST_F(CliPlanPipeline, FollowsTheSchedule) {
  // In lockstep PipeDream's ticks are all as long as the longest.
  EXPECT_NEAR(14, planned("--stages 3 --schedule pipedream").at("period_ms"), 1e-9);
  EXPECT_NEAR(11, planned("--stages 3 --schedule pipedream-async").at("period_ms"), 1e-9);
  EXPECT_NEAR(28, planned("--stages 3 --schedule 1f1b").at("period_ms"), 1e-9);
  // Beside each other F and B take max(F, B, 0.6 (F + B)); on the last stage F + B.
  EXPECT_NEAR(7, planned("--stages 3 --schedule dualpipe --corun 0.6").at("period_ms"), 1e-9);
  // A transfer takes 20 ms in each direction. A batch's round trip takes 2·7 + 21 + 40 ms, three at a time.
  EXPECT_NEAR(25, planned("--stages 2 --schedule dualpipe --link 50kB/s").at("period_ms"), 1e-9);
}

// Freely, these stages take turns for 40 batches before they come to the longest stage's F + B.
TEST_F(CliPlanPipeline, SimulatesUntilTheSteadyState) {
  json profile = layers();
  profile["layers"].erase(4), profile["layers"].erase(4);
  constexpr std::pair<double, double> kUnequal[] = {{0.99, 0.64}, {0.31, 0.44}, {0.28, 0.38}, {0.62, 1.13}};
  for (int i = 0; i < 4; ++i)
    profile["layers"][i]["forward_ms"] = kUnequal[i].first,
    profile["layers"][i]["backward_ms"] = kUnequal[i].second;
  const json plan = json::parse(run(command("--stages 4 --schedule dualpipe-vs-async --json", profile)).out);
  EXPECT_NEAR(1.75, plan.at("period_ms"), 1e-9);
  EXPECT_NEAR(1.75, plan.at("simulated_ms"), 1e-9);
}

TEST_F(CliPlanPipeline, ReplicatesStages) {
  const json plan = planned("--stages 4 --schedule dualpipe --replicate");
  EXPECT_LE(plan.at("period_ms").get<double>(), 7 + 1e-9) << "four replicas of one stage";
  int devices = 0;
  for (const json& stage : plan.at("stages")) devices += stage.at("replicas").get<int>();
  EXPECT_LE(devices, 4);
  EXPECT_GT(devices, static_cast<int>(plan.at("stages").size()));
  EXPECT_NEAR(plan.at("period_ms").get<double>(), plan.at("simulated_ms").get<double>(), 1e-9);
  const std::string hint = "Without --link, the all-reduces of replicas";
  const auto table = [&](const std::string& link) {
    return run(command("--stages 4 --schedule dualpipe --replicate" + link)).out;
  };
  EXPECT_NE(std::string::npos, table("").find(hint)) << table("");
  EXPECT_EQ(std::string::npos, table(" --link 1GB/s").find(hint)) << table(" --link 1GB/s");
}

// An all-reduce takes as long as F and B of the longest layer, which the simulator does not hide. Then it is
// better to have no replicas.
TEST_F(CliPlanPipeline, ReplicatesWhereTheSimulatorIsFaster) {
  json heavy = layers();
  for (json& layer : heavy["layers"]) layer["weight_bytes"] = 2'000'000;
  for (const char* schedule :
       {"dualpipe", "pipedream-async", "1f1b --microbatches 4", "gpipe --microbatches 4"})
    for (const char* link : {"200MB/s", "1GB/s", "10GB/s"}) {
      const std::string options = fmt::format("--stages 4 --schedule {} --link {} --json", schedule, link);
      const auto simulated = [&](const std::string& more) {
        return json::parse(run(command(options + more, heavy)).out).at("simulated_ms").get<double>();
      };
      EXPECT_LE(simulated(" --replicate"), simulated("")) << options;
    }
}

// The smallest budget that works is that of all numbers of stages: of one stage here, whatever micro-batches
// more stages would need.
TEST_F(CliPlanPipeline, NamesTheSmallestBudgetOfReplicas) {
  for (const char* schedule : {"dualpipe", "pipedream-2bw --microbatches 2", "1f1b --microbatches 4"}) {
    const std::string plan = fmt::format("--stages 4 --replicate --schedule {} --memory-budget ", schedule);
    const std::string said = run(command(plan + "1")).err;
    std::smatch found;
    ASSERT_TRUE(std::regex_search(said, found, std::regex("smallest budget that works with .* is ([0-9]+)")))
        << said;
    const std::int64_t least = std::stoll(found[1]);
    EXPECT_TRUE(succeeds(command(plan + std::to_string(least)))) << schedule;
    expect_refused(command(plan + std::to_string(least - 1)), {"memory budget", std::to_string(least)});
  }
}

TEST_F(CliPlanPipeline, PrintsATable) {
  const Ended e = run(command("--stages 3 --schedule dualpipe"));
  EXPECT_EQ(0, e.status) << e.err;
  for (const char* text :
       {"layer0 … layer2", "period 11.000 ms by the cost model, 11.000 ms in the simulator",
        "one device takes 28.000 ms", "cuts: layer3, layer4"})
    EXPECT_NE(std::string::npos, e.out.find(text)) << e.out;
  EXPECT_EQ(std::string::npos, e.out.find("at a time")) << e.out;
  EXPECT_NE(std::string::npos, run(command("--stages 3")).out.find("1 of 3 devices work at a time"));
}

TEST_F(CliPlanPipeline, WritesAPlanForTraining) {
  const std::string plan = file("plan.json");
  EXPECT_TRUE(succeeds(command("--stages 3 --schedule dualpipe --output " + plan)));
  json written = json::parse(read_file(plan));
  EXPECT_EQ(1u, written.erase("checksum"));
  EXPECT_EQ(json({{"format", "tandem plan"}, {"cuts", {"layer3", "layer4"}}}), written);
}

TEST_F(CliPlanPipeline, TakesTheStagesOfAFile) {
  const std::string schedule = file("schedule.json"), profile = write("stages.json", R"({"stages": [
    {"forward_ms": 1, "backward_ms": 1, "activation_bytes": 1, "weight_bytes": 1},
    {"forward_ms": 1, "backward_ms": 1, "activation_bytes": 1, "weight_bytes": 1},
    {"forward_ms": 1, "backward_ms": 1, "activation_bytes": 1, "weight_bytes": 1}]})");
  EXPECT_TRUE(succeeds(kTandem + "sim pipeline --profile " + profile +
                       " --schedule dualpipe --write-schedule " + schedule));
  EXPECT_EQ(planned("--stages 3 --schedule dualpipe"), planned("--schedule " + schedule));
  expect_refused(kTandem + "sim pipeline --profile " + profile + " --schedule dualpipe --write-schedule " +
                     file("x") + " --trace " + file("x"),
                 {"--trace and --write-schedule are both", file("x")});
}

TEST_F(CliPlanPipeline, KeepsTheMemoryBudget) {
  const json plan = planned("--stages 3 --schedule dualpipe --memory-budget 60kB");
  for (const json& stage : plan.at("stages")) EXPECT_LE(stage.at("memory_bytes").get<double>(), 60'000);
  EXPECT_EQ(json({"layer2", "layer4"}), plan.at("cuts"));
  EXPECT_GT(plan.at("period_ms").get<double>(), 11);
  // The last four layers keep 4 · 5000 bytes, with weights, gradient, and momentum 4 · 3 · 400; 2000 between
  // two layers; and (3 + 2) · 1000 for what crosses the cut.
  expect_refused(command("--stages 3 --schedule dualpipe --memory-budget 20kB"),
                 {"memory budget of 20000 bytes", "stage 2", "'layer2'", "needs 31800 bytes", "11800 more",
                  "the smallest budget that works"});
}

// VGG16 has 138,357,544 parameters.
TEST_F(CliPlanPipeline, TakesTheLayersOfANetwork) {
  const auto listed = [&](const std::string& speed) {
    const Ended e = run(kTandem + "layers vgg16 --for imagenet -b 2 " + speed);
    EXPECT_EQ(0, e.status) << e.err;
    return json::parse(e.out);
  };
  const json slow = listed("--gflops 100 --gigabytes 20"), fast = listed("--gflops 200 --gigabytes 40");
  double bytes = 0;
  for (std::size_t i = 0; i < slow.at("layers").size(); ++i) {
    const json &s = slow.at("layers")[i], &f = fast.at("layers")[i];
    bytes += s.at("gradient_bytes").get<double>();
    for (const char* time : {"forward_ms", "backward_ms"})
      EXPECT_NEAR(s.at(time).get<double>(), 2 * f.at(time).get<double>(), 1e-9) << s.at("name");
  }
  EXPECT_EQ(16u, slow.at("layers").size());
  EXPECT_EQ(4.0 * 138'357'544, bytes);
  // Its second convolution multiplies 2·224²·9·64·64 pairs and adds; the bias, a ReLU and a pooling follow.
  const double flops = 2.0 * 2 * 224 * 224 * 9 * 64 * 64, ms = slow.at("layers")[1].at("forward_ms");
  EXPECT_NEAR(flops / 100e9 * 1e3, ms, 0.15 * ms);
  const Ended cut = run(command("--stages 4 --schedule dualpipe --json", slow));
  ASSERT_EQ(0, cut.status) << cut.err;
  EXPECT_EQ(3u, json::parse(cut.out).at("cuts").size());
  expect_refused(kTandem + "layers vgg16", {"vgg16", "cifar", "imagenet"});
  expect_refused(kTandem + "layers vgg61", {"vgg61", "bert_base"});
  expect_refused(kTandem + "layers gpt2 --config " + file("none.json"), {"none.json"});
}

TEST_F(CliPlanPipeline, RefusesWhatItCannotPlan) {
  expect_refused(command("--stages 7"), {"6 layers", "7 stages"});
  expect_refused(command("--stages 2", json{{"stages", json::array()}}),
                 {"is of stages", "tandem sim pipeline"});
  expect_refused(command(""), {"--stages"});
  expect_refused(command("--stages 4 --schedule pipedream-2bw"), {"micro-batches", "4 or more"});
  expect_refused(command("--stages 4 --schedule interleaved --chunks 2 --replicate"),
                 {"--replicate", "replicas"});
  expect_refused(command("--stages 4 --schedule interleaved --chunks 2 --microbatches 3"),
                 {"multiple of 2", "not 3"});
  expect_refused(command("--stages 4 --chunks 2"), {"--chunks has no effect with --schedule 1f1b"});
  expect_refused(command("--stages 4 --spectrain-target serial"), {"--spectrain-target has no effect"});
  expect_refused(command("--stages 2 --corun 0.4"), {"--corun", "0.5"});
  expect_refused(command("--stages 2 --link fast"), {"fast", "1GB/s"});
  expect_refused(command("--stages 2 --memory-budget much"), {"'much'", "MiB"});
  const auto refuse = [&](const char* key, const json& value, const std::vector<std::string>& words) {
    json profile = layers();
    json& layer = profile["layers"][2];
    if (value.is_null())
      layer.erase(key);
    else
      layer[key] = value;
    expect_refused(command("--stages 2", profile), words);
  };
  refuse("forward_ms", 0, {"layers.json", "layers", "forward_ms", "0"});
  for (const char* key :
       {"name", "forward_ms", "backward_ms", "activation_bytes", "resident_bytes", "weight_bytes"}) {
    refuse(key, nullptr, {"layers.json", key});
    refuse(key, -1, {"layers.json", key});
    refuse(key, json::array(), {"layers.json", key});
  }
  refuse("backward_ms", 0, {"layers.json", "backward_ms"});
  refuse("name", "layer0", {"layers.json", "two layers 'layer0'"});
  refuse("flops", 1, {"layers.json", "flops"});
  const std::string nan = write("nan.json", R"({"layers": [{"name": "a", "forward_ms": NaN}]})");
  expect_refused(kTandem + "plan pipeline --stages 1 --profile " + nan, {"nan.json"});
  expect_refused(kTandem + "plan pipeline --stages 1 --profile " + write("empty.json", R"({"layers": []})"),
                 {"empty.json", "\"layers\" has 0"});
  expect_refused(kTandem + "plan pipeline --stages 1 --profile " + file("none.json"), {"none.json"});
}

}  // namespace
}  // namespace tandem::testing
