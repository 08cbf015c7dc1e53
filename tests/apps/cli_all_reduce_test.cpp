// tandem plan all-reduce and tandem sim all-reduce: what they print, and what they refuse.
#include <sys/stat.h>

#include "cli.h"

namespace tandem::testing {
namespace {

using nlohmann::json;

class CliAllReduce : public Cli {
 protected:
  // Three layers; all-reduces of 1e6 bytes per ms by 512 threads.
  static json profile() {
    const json curve{{"gamma1", 1e6}, {"gamma2", 0}, {"gamma3", 0.1}, {"gamma4", 0.6}};
    return {{"layers",
             {{{"name", "fc"}, {"compute_ms", 1}, {"gradient_bytes", 4e6}},
              {{"name", "conv2"}, {"compute_ms", 6}, {"gradient_bytes", 1e6}},
              {{"name", "conv1"}, {"compute_ms", 3}, {"gradient_bytes", 0}}}},
            {"contention", {{"alpha1", 1}, {"alpha2", 1e-4}, {"overlapped", curve}, {"alone", curve}}},
            {"hop_latency_ms", 0.01},
            {"forward_ms", 5},
            {"batch_size", 32}};
  }
  Ended plan(const json& of, const std::string& options) const {
    return run(kTandem + "plan all-reduce --profile " + write("p.json", of.dump()) + " " + options);
  }
  void expect_refused_profile(const json& of, const std::vector<std::string>& words) const {
    expect_refused(kTandem + "plan all-reduce --profile " + write("p.json", of.dump()), words);
  }
};

TEST_F(CliAllReduce, PlansAndPredicts) {
  const Ended e = plan(profile(), "--policy wfbp --nodes 2 --json");
  ASSERT_EQ(0, e.status) << e.err;
  const json wfbp = json::parse(e.out);
  EXPECT_EQ("wfbp", wfbp["policy"]);
  ASSERT_EQ(3, wfbp["groups"].size());
  EXPECT_EQ((json{{"first_layer", 0}, {"last_layer", 0}, {"bytes", 4e6}, {"threads", 512}}),
            wfbp["groups"][0]);
  // a = 2 hops. fc takes 4.02 ms beside conv2, of which 4.02·s are done then; s = 1 − 512e-4. conv2 has all
  // its 6 ms at 1 + 6 + 4.02·(1 − s); its all-reduce takes 1.02 ms beside conv1.
  const double s = 1 - 512e-4;
  EXPECT_NEAR(10 + (4.02 + 1.02) * (1 - s), wfbp["predicted"]["backward_ms"], 1e-9);
  EXPECT_NEAR(0, wfbp["predicted"]["residual_communication_ms"], 1e-9);
  EXPECT_TRUE(wfbp["predicted"]["dp_ms"].is_null());

  const json libra = json::parse(plan(profile(), "--nodes 2 --allocations 128,512 --json").out);
  EXPECT_EQ("libra", libra["policy"]);
  EXPECT_EQ(128, libra["groups"][0]["threads"]) << "as fast, and costs less";
  EXPECT_LE(libra["predicted"]["backward_ms"], libra["predicted"]["dp_ms"].get<double>() + 1e-9);
  EXPECT_EQ(libra,
            json::parse(plan(profile(), "--nodes 2 --allocations 128,512 --groups unlimited --json").out));
  EXPECT_NE(plan(profile(), "--policy se").out.find("    0          0…2       5000000      512  fc"),
            std::string::npos);
}

TEST_F(CliAllReduce, TheProfileOfTheDocumentationCanBePlanned) {
  const std::string text = read_file(TANDEM_SOURCE "/docs/data-parallel.md"), fence = "```json\n";
  const std::size_t begin = text.find(fence) + fence.size();
  const Ended e = plan(json::parse(text.substr(begin, text.find("```", begin) - begin)), "--json");
  ASSERT_EQ(0, e.status) << e.err;
  EXPECT_EQ("", e.err) << "its rates hold the assumptions";
  EXPECT_EQ(3, json::parse(e.out)["groups"].size());
}

TEST_F(CliAllReduce, SimulatesPoliciesOnSeveralClusters) {
  const std::string simulate = kTandem + "sim all-reduce --profile " + write("p.json", profile().dump());
  const Ended e = run(simulate + " --policy se,libra --nodes 1,2,64 --json");
  ASSERT_EQ(0, e.status) << e.err;
  const json results = json::parse(e.out)["results"];
  ASSERT_EQ(6, results.size());
  EXPECT_EQ(1.0, results[0]["normalized_throughput"]) << "one node reduces nothing";
  EXPECT_EQ("se", results[2]["policy"]);
  EXPECT_EQ(2, results[2]["nodes"]);
  EXPECT_NEAR(10 + 0.02 + 5, results[2]["backward_ms"], 1e-9);
  EXPECT_NEAR(20.02, results[2]["iteration_ms"], 1e-9);
  EXPECT_NEAR(15 / 20.02, results[2]["normalized_throughput"], 1e-9);
  const Ended one = run(simulate + " --nodes 1 --json");
  ASSERT_EQ(0, one.status) << one.err;
  for (const json& result : json::parse(one.out)["results"])
    EXPECT_EQ(1.0, result["normalized_throughput"]) << result["policy"] << " reduces nothing on one node";
  const Ended drawn = run(simulate + " --policy horovod --nodes 4 --trace " + file("t.json"));
  EXPECT_EQ(0, drawn.status) << drawn.err;
  EXPECT_NE(drawn.out.find("timer"), std::string::npos) << drawn.out;
  EXPECT_FALSE(read("t.json")["traceEvents"].empty());
}

TEST_F(CliAllReduce, TheRunThatMeasuredAProfileGivesTheNodes) {
  const auto nodes = [&](const json& of, const std::string& options) {
    const std::string command = kTandem + "sim all-reduce --policy se --json --profile ";
    return json::parse(run(command + write("p.json", of.dump()) + options).out)["results"][0]["nodes"];
  };
  json measured = profile();
  EXPECT_EQ(8, nodes(measured, ""));
  measured["run"] = {{"ranks", 3}, {"policy", "libra"}};
  EXPECT_EQ(3, nodes(measured, ""));
  EXPECT_EQ(2, nodes(measured, " --nodes 2"));
  EXPECT_EQ(plan(measured, "--json --allocations 128").out,
            plan(profile(), "--json --allocations 128 --nodes 3").out);
  measured["run"]["ranks"] = 0;
  expect_refused_profile(measured, {"p.json", "\"ranks\" is 0"});
  measured["run"] = {{"ranks", 3}, {"rank", 3}};
  expect_refused_profile(measured, {"p.json", "\"run\"", "unknown key 'rank'"});
}

// The model of a run holds for its own numbers of threads. Older versions did not save them.
TEST_F(CliAllReduce, TheRunThatMeasuredAProfileGivesTheThreads) {
  json measured = profile();
  measured["contention"]["alpha2"] = 0.1;
  measured["baseline_threads"] = 1;
  const auto same_as = [&](const std::string& allocations, const std::vector<std::string>& warned) {
    const Ended e = plan(measured, "--json");
    EXPECT_EQ(e.status, 0) << e.err;
    expect_words(e.err, warned);
    EXPECT_EQ(e.out, plan(measured, "--json --allocations " + allocations).out);
    EXPECT_EQ(run(kTandem + "sim all-reduce --profile " + file("p.json")).status, 0);
  };
  measured["run"] = {{"ranks", 3}, {"comm_threads", {2, 4, 16}}};
  same_as("2,4", {"warning: 16 threads cannot be chosen", "α1 − α2·r"});
  measured["run"]["comm_threads"] = {4};
  same_as("4", {});
  measured["run"] = {{"ranks", 3}};
  same_as("1,2,4,8", {"warning: 16 threads cannot be chosen", "warning: 64 threads"});
  measured["run"]["comm_threads"] = {1.5};
  expect_refused_profile(measured, {"p.json", "\"comm_threads\"", "1.5"});
  measured["contention"]["alpha2"] = 1e-3;
  measured.erase("run");
  same_as("128,256,512", {"warning: 1024 threads cannot be chosen"});
}

TEST_F(CliAllReduce, SimulatesAllPoliciesByDefault) {
  const Ended e = run(kTandem + "sim all-reduce --json --profile " + write("p.json", profile().dump()));
  const json results = json::parse(e.out)["results"];
  std::vector<std::string> policies;
  for (const json& result : results) policies.push_back(result["policy"]);
  EXPECT_EQ((std::vector<std::string>{"se", "wfbp", "ddp", "horovod", "mg-wfbp", "mg-opt", "mg-cf", "libra-m",
                                      "libra"}),
            policies);
}

TEST_F(CliAllReduce, ATableStandsInPlaceOfTheModel) {
  json p = profile();
  p.erase("contention");
  p["table"] = {{{"threads", 1}, {"compute_rate", 0.5}, {"overlapped", 1e6}, {"alone", 1e6}},
                {{"threads", 2}, {"compute_rate", 0.4}, {"overlapped", 3e6}, {"alone", 4e6}}};
  p["baseline_threads"] = {{2e6, 1}, {1e9, 2}};
  const Ended e = plan(p, "--policy wfbp --json");
  ASSERT_EQ(0, e.status) << e.err;
  const json groups = json::parse(e.out)["groups"];
  EXPECT_EQ(2, groups[0]["threads"]);
  EXPECT_EQ(1, groups[1]["threads"]);
  p["baseline_threads"] = 3;
  expect_refused_profile(p, {});
  p["table"][1]["compute_rate"] = 1.01;
  expect_refused_profile(p, {"\"compute_rate\" is 1.01", "to 1"});
  p["table"][1]["compute_rate"] = 0.4;
  p["table"][1]["overlapped"] = 5e6;
  p["baseline_threads"] = 1;
  const Ended warned = plan(p, "--json");
  EXPECT_EQ(0, warned.status);
  EXPECT_TRUE(json::accept(warned.out)) << "standard output is JSON only";
  EXPECT_NE(warned.err.find("warning: with 2 threads an all-reduce is faster beside computation"),
            std::string::npos);
}

TEST_F(CliAllReduce, AShippedProfileIsFoundByItsName) {
  const std::string options = " --policy libra --json";
  const Ended named = run("cd / && " + kTandem + "plan all-reduce --profile vgg16" + options);
  EXPECT_EQ(0, named.status) << named.err;
  EXPECT_EQ(
      run(kTandem + "plan all-reduce --profile " TANDEM_SOURCE "/docs/profiles/vgg16.json" + options).out,
      named.out);
}

// /bin/sh has no <(command), which is such a pipe, too.
TEST_F(CliAllReduce, AProfileComesThroughAPipeIfSomethingWritesIt) {
  const std::string p = write("p.json", profile().dump()), fifo = file("fifo"),
                    plan = "timeout 20 " + kTandem + "plan all-reduce --json --profile ";
  const std::string expected = run(plan + p).out;
  EXPECT_EQ(expected, run("{ sleep 0.2; cat " + p + "; } | " + plan + "/dev/stdin").out);
  EXPECT_EQ(expected, run(plan + "/dev/stdin <" + p).out);
  ASSERT_EQ(0, mkfifo(fifo.c_str(), 0600));
  EXPECT_EQ(expected, run("{ sleep 0.2; cat " + p + "; } >" + fifo + " & sleep 0.1; " + plan + fifo).out);
  const Ended unwritten = run(plan + fifo);
  EXPECT_EQ(1, unwritten.status) << "124: it waited";
  expect_words(unwritten.err, {"profile '" + fifo, "empty pipe", "give a file"});
}

TEST_F(CliAllReduce, RefusesWhatItCannotPlan) {
  const auto with = [](const char* key, const json& value) {
    json p = profile();
    p[json::json_pointer(key)] = value;
    return p;
  };
  expect_refused_profile(with("/layers", json::array()), {"p.json", "\"layers\"", "above 0"});
  expect_refused_profile(with("/layers/1/compute_ms", -1), {"[1]", "\"compute_ms\"", "-1"});
  expect_refused_profile(with("/layers/0/bytes", 1), {"unknown key 'bytes'"});
  expect_refused_profile(with("/table", json::array()), {"\"contention\" or \"table\""});
  expect_refused_profile(with("/contention/alpha2", 0.01), {"128 threads", "α1 − α2·r"});
  expect_refused_profile(with("/contention/alpha1", 1.1), {"\"alpha1\" is 1.1", "to 1"});
  expect_refused_profile(with("/hop_latency_ms", "1"), {"\"hop_latency_ms\""});
  expect_refused_profile(with("/baseline_threads", json::array({json::array({1})})),
                         {"[most bytes, threads]"});
  const std::string command = kTandem + "plan all-reduce --profile " + write("p.json", profile().dump());
  expect_refused(kTandem + "plan all-reduce --profile " + file("none.json"), {"none.json", "no such file"});
  expect_refused(kTandem + "sim all-reduce --profile vgg",
                 {"'vgg'", "xception, resnet152, vgg16, bert-base"});
  expect_refused(kTandem + "plan all-reduce", {"--profile"});
  expect_refused(kTandem + "plan", {"plan"});
  expect_refused(kTandem + "sim", {"give the file of a Program, all-reduce, or pipeline"});
  expect_refused(command + " --node 2", {"'--node'", "perhaps --nodes", "tandem plan all-reduce --help"});
  expect_refused(command + " --policy fifo", {"unknown policy 'fifo'", "mg-wfbp"});
  expect_refused(command + " --policy se,libra", {"one --policy"});
  expect_refused(command + " --groups 0", {"--groups", "0 is not from 1"});
  expect_refused(command + " --groups 3,5", {"--groups '3,5'", "one number, or unlimited"});
  expect_refused(command + " --groups many", {"--groups", "'many'"});
  expect_refused(command + " --chunks 0", {"--chunks"});
  expect_refused(command + " --chunks 8000001", {"--chunks"});
  expect_refused(command + " --allocations 128,x", {"--allocations", "'x'"});
  expect_refused(command + " --nodes 0", {"--nodes", "0 is not from 1"});
  expect_refused(kTandem + "sim all-reduce --profile " + file("p.json") + " --trace " + file("t.json"),
                 {"one --policy"});
}

}  // namespace
}  // namespace tandem::testing
