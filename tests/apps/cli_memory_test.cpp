// Memory plans on the command line: budgets, policies, plan files and problems.
#include "cli.h"

namespace tandem::testing {
namespace {

TEST_F(Cli, TrainsWithinAMemoryBudget) {
  const std::string train = kTrain + "--arch resnet20 -b 32 --steps 2 --threads 1 ";
  const Ended without = run(train);
  const Ended planned = run(train + "--memory-budget 31MB --explain");
  EXPECT_EQ(0, planned.status);
  expect_words(planned.out + planned.err,
               {"memory plan by mu-two+: 0 activations swapped", "computed again", "inactive ms",
                "layer1.0.conv1 conv2d", "recompute", "nothing is swapped: on a CPU"});
  const auto loss = [](const Ended& run) { return run.out.substr(run.out.find("train loss"), 18); };
  EXPECT_EQ(loss(without), loss(planned));
  const Ended copies = run(train + "--memory-budget 20MB --copy-link 8GB/s --memory-plan vdnn");
  EXPECT_EQ(0, copies.status) << copies.out + copies.err;
  expect_words(copies.out + copies.err, {"memory plan by vdnn:", " swapped, 0 computed again",
                                         "computation beside these copies takes "});
  expect_refused(train + "--memory-plan best", {"--memory-plan", "best", "mu-two+", "optimal"});
  expect_refused(train + "--memory-plan optimal", {"optimal", "at most 64 values"});
  expect_refused(train + "--memory-budget 31MB --copy-link 8", {"--copy-link", "unit"});
  expect_refused(train + "--memory-budget 31MB --copy-link 8GB/s,1ms", {"--copy-link", "bandwidth alone"});
  expect_refused(train + "--copy-link 8GB/s", {"--copy-link has no effect without --memory-budget"});
  expect_refused(train + "--explain", {"--explain has no effect without --memory-budget"});
  expect_refused(train + "--memory-plan mu-two --parallel pipeline --stages 2 --schedule dualpipe",
                 {"a memory plan is of one batch", "flushes"});
}

TEST_F(Cli, PlansTheListsOfAPlanFile) {
  const std::string train = kTrain + "--arch resnet20 -b 32 --steps 2 --threads 1 ",
                    lists =
                        "--plan " + write("lists.json", R"({"swap": ["layer1.0"], "recompute": ["layer2"]})"),
                    swaps = lists + " --copy-link 8GB/s";
  const Ended without = run(train);
  const Ended planned = run(train + swaps + " --memory-plan lists --explain --output " + file("listed"));
  EXPECT_EQ(0, planned.status) << planned.err;
  expect_words(planned.out + planned.err, {"memory plan by lists:", " activations swapped, "});
  const auto loss = [](const Ended& run) { return run.out.substr(run.out.find("train loss"), 18); };
  EXPECT_EQ(loss(without), loss(planned));
  const Ended again = run(train + "--plan " + file("listed/plan.json"));
  EXPECT_EQ(loss(without), loss(again)) << again.err;
  expect_refused(train + swaps + " --memory-plan lists --memory-budget 1MB",
                 {"the smallest budget that works with 'lists' is"});
  expect_refused(train + lists + " --memory-plan lists",
                 {"'lists' swaps activations, which needs a copy link"});
  expect_refused(train + swaps + " --memory-plan vdnn",
                 {"'vdnn' stands beside lists", "let the plan 'lists'"});
  expect_refused(train + "--memory-plan lists", {"'lists' needs lists of swaps or recomputes"});
}

TEST_F(Cli, RepeatsAMemoryPlan) {
  const std::string train = kTrain + "--arch resnet20 -b 32 --steps 3 --threads 1 ";
  const auto succeed = [&](const std::string& flags) {
    const Ended r = run(train + flags);
    EXPECT_EQ(0, r.status) << flags << r.err;
    return r;
  };
  succeed("--memory-budget 20MB --copy-link 4GB/s --dump-profile --output " + file("planned"));
  const Ended again = succeed("--plan " + file("planned/plan.json") + " --output " + file("again"));
  expect_words(again.out, {"repeats the memory plan"});
  const auto planned = read("planned/summary.json"), repeated = read("again/summary.json");
  for (const char* key : {"train_loss", "peak_bytes", "planned_peak_bytes", "live_peak_bytes"})
    EXPECT_EQ(planned.at(key), repeated.at(key)) << key;
  EXPECT_LE(repeated.at("peak_bytes"), 20'000'000);
  expect_refused(kTrain + "--arch resnet20 -b 16 --threads 1 --plan " + file("planned/plan.json"),
                 {"the memory plan is for another step", "network, batch"});
  expect_refused(train + "--memory-plan vdnn --plan " + file("planned/plan.json"),
                 {"stands beside a policy"});
  nlohmann::json forged = read("planned/plan.json");
  forged["memory"][0]["program"][0] = {"run", 0, 900'000};
  expect_refused(train + "--plan " + write("forged.json", forged.dump()),
                 {"a node or value that its step does not have"});
  EXPECT_EQ(4e6, forged["copy_link"]["bytes_per_ms"]) << "the plan says over which link it swaps";
  expect_refused(train + "--host-budget 1MB --plan " + file("planned/plan.json"),
                 {"the host budget of 1000000 bytes is too small", "keeps"});
  forged["memory"][0]["program"][0] = {"jump", 0};
  expect_refused(train + "--plan " + write("unknown.json", forged.dump()), {"'jump' is no instruction"});
  // The problem that was planned, offline.
  const Ended offline = run(kTandem + " plan memory --graph " + file("planned/memory.json") +
                            " --limit 20MB --policy none,mu-two+ --json");
  ASSERT_EQ(0, offline.status) << offline.err;
  const auto results = nlohmann::json::parse(offline.out).at("results");
  EXPECT_FALSE(results[0].at("feasible"));
  EXPECT_TRUE(results[1].at("feasible"));
  // Without swaps vDNN needs more, and mu-two+ does not.
  expect_refused(train + "--memory-budget 20MB --copy-link 4GB/s --memory-plan vdnn --host-budget 1MB",
                 {"the memory budget of 20000000 bytes", "without swaps", "host budget of 1000000"});
  const Ended recomputes = succeed("--memory-budget 20MB --copy-link 4GB/s --host-budget 1MB");
  expect_words(recomputes.out + recomputes.err,
               {"0 activations swapped", "more on the host than --host-budget"});
  expect_refused(train + "--memory-budget 20MB --host-budget 1MB",
                 {"--host-budget has no effect without --copy-link"});
}

// A profile of another run has other kernels.
TEST_F(Cli, SaysWhichTimesOfAMemoryPlanAreEstimated) {
  const std::string train = kTrain + "--arch resnet20 -b 32 --steps 1 --threads 1 --memory-budget 20MB ";
  ASSERT_EQ(0, run(train + "--simulate --output " + file("sim")).status);
  const nlohmann::json profile = read("sim/profile.json");
  const Ended whole = run(train + "--profile " + file("sim/profile.json"));
  EXPECT_EQ(0, whole.status) << whole.err;
  EXPECT_EQ(std::string::npos, whole.out.find("estimated")) << whole.out;
  nlohmann::json without = nlohmann::json::object();
  for (const auto& [key, value] : profile.items())
    if (key.find("conv2d{") == std::string::npos) without[key] = value;
  const Ended part = run(train + "--profile " + write("part.json", without.dump()));
  EXPECT_EQ(0, part.status) << part.err;
  expect_words(part.out, {"the profile has no times of", "kernel", "estimated"});
}

TEST_F(Cli, DrawsAMemoryPlan) {
  const std::string plan = kTandem + " plan memory --graph " TANDEM_SOURCE
                                     "/docs/programs/pair.json --limit 220MB --policy mu-two+ ";
  const Ended drawn = run(plan + "--timeline --trace " + file("t.json"));
  ASSERT_EQ(0, drawn.status) << drawn.err;
  expect_words(drawn.out, {"compute", "to host", "from host", "a", "1", "o", "i", "+"});
  const auto trace = read("t.json");
  EXPECT_GT(trace.at("traceEvents").size(), 20u);
  expect_refused(plan + "--json --timeline", {"--timeline has no effect with --json"});
  expect_refused(kTandem + " plan memory --graph " TANDEM_SOURCE
                           "/docs/programs/pair.json --limit 220MB --policy all --trace x.json",
                 {"--trace holds the timeline of one plan"});
  // Each mistake that a file can have is in tests/passes/memory_problem_test.cpp.
  expect_refused(
      kTandem + " plan memory --limit 1MB --graph " +
          write(
              "graph.json",
              R"({"graphs": [{"name": "a", "nodes": [], "values": [{"id": 1, "bytes": -4, "kind": "input"}]}],
                                             "link": {"bytes_per_ms": 1}, "static_bytes": 0})"),
      {"--graph: problem '" + file("graph.json"), "\"bytes\" is -4", "an integer from 0"});
}

}  // namespace
}  // namespace tandem::testing
