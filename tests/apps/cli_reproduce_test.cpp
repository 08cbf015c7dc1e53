// tandem reproduce: its files, that their numbers are the simulator's, and what it refuses.
#include <sstream>

#include <fmt/format.h>

#include "cli.h"

namespace tandem::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class CliReproduce : public Cli {
 protected:
  std::string libra(const std::string& options = "") const {
    return kTandem + "reproduce libra --output " + file("out") + " " + options;
  }
  // The value in the last column of the row that begins with these cells.
  double value(const std::string& csv, const std::string& cells) const {
    std::istringstream lines(read_file(file("out/" + csv)));
    for (std::string line; std::getline(lines, line);)
      if (line.starts_with(cells + ",")) return std::stod(line.substr(cells.size() + 1));
    ADD_FAILURE() << csv << " has no row " << cells;
    return 0;
  }
};

TEST_F(CliReproduce, TheNumbersOfTheFiguresAreTheSimulators) {
  const Ended e = run(libra());
  ASSERT_EQ(0, e.status) << e.err;
  const std::vector<std::pair<std::string, std::string>> networks{
      {"Xception", "xception"}, {"ResNet152", "resnet152"}, {"VGG16", "vgg16"}, {"BERT-Base", "bert-base"}};
  const std::map<std::string, std::string> titles{{"se", "SE"},        {"horovod", "H-N"},
                                                  {"mg-wfbp", "MG-N"}, {"libra-m", "LIBRA-M"},
                                                  {"libra", "LIBRA"},  {"mg-cf", "MG-CF"}};
  for (const auto& [title, name] : networks) {
    const double batch = name == "vgg16" ? 128 : 32;
    const Ended simulated = run(kTandem + "sim all-reduce --profile " + name +
                                " --policy se,horovod,mg-wfbp,libra-m,libra,mg-cf --nodes 8,16,2048 --json");
    ASSERT_EQ(0, simulated.status) << simulated.err;
    for (const json& r : json::parse(simulated.out)["results"]) {
      const std::string policy = titles.at(r["policy"]), nodes = std::to_string(r["nodes"].get<int>());
      SCOPED_TRACE(title + " " + policy + " " + nodes);
      if (nodes == "8") {
        EXPECT_NEAR(1e3 * batch / r["iteration_ms"].get<double>(), value("fig6.csv", title + "," + policy),
                    1e-9);
        EXPECT_NEAR(r["backward_ms"],
                    value("fig7.csv", title + "," + policy + ",computation") +
                        value("fig7.csv", title + "," + policy + ",residual communication"),
                    1e-9);
      } else if (policy != "MG-CF") {
        EXPECT_NEAR(r["normalized_throughput"], value("fig9.csv", title + "," + nodes + "," + policy), 1e-12);
      }
    }
  }
}

// By hand: 112.7 MB and 25.7 ms, 8 nodes, 50 Gb/s, 7 µs per hop; SE reduces everything after backward.
TEST_F(CliReproduce, TheNumbersAreThoseOfTheEquations) {
  ASSERT_TRUE(succeeds(libra()));
  const double speed = 1 - 1.345e-4 * 1024, startup = 14 * 0.007;
  const double rate = 6.25e6 * (1 - std::exp(-0.107 * std::pow(1024, 0.6)));
  EXPECT_NEAR(25.7 / speed, value("fig1a.csv", "1024,computation"), 1e-9);
  EXPECT_NEAR(startup + 112.7e6 * 14 / 8 / rate, value("fig1a.csv", "1024,all-reduce"), 1e-9);
  const json vgg = read_json(TANDEM_SOURCE "/docs/profiles/vgg16.json");
  double compute = 0;
  for (const json& layer : vgg["layers"]) compute += layer["compute_ms"].get<double>();
  const double alone = 6.25e6 * (1 - std::exp(-0.107 * std::pow(512, 0.6)));
  EXPECT_NEAR(compute, value("fig7.csv", "VGG16,SE,computation"), 1e-9);
  EXPECT_NEAR(startup + 4 * 138'357'544.0 * 14 / 8 / alone,
              value("fig7.csv", "VGG16,SE,residual communication"), 1e-6);
  EXPECT_NEAR(value("fig7.csv", "VGG16,SE,residual communication"),
              value("fig8.csv", "VGG16,SE,communication"), 1e-9);
}

TEST_F(CliReproduce, WritesAPageThatNeedsNoOtherFile) {
  const Ended e = run(libra());
  ASSERT_EQ(0, e.status) << e.err;
  EXPECT_NE(e.out.find("6 figures"), std::string::npos) << e.out;
  const std::string page = read_file(file("out/index.html"));
  for (const char* figure : {"fig1a", "fig1b", "fig6", "fig7", "fig8", "fig9"}) {
    SCOPED_TRACE(figure);
    const std::string svg = read_file(file(std::string("out/") + figure + ".svg"));
    EXPECT_TRUE(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
    EXPECT_EQ(svg.find("nan"), std::string::npos);
    EXPECT_NE(page.find(svg), std::string::npos) << "the page does not show it";
    EXPECT_TRUE(fs::exists(file(std::string("out/") + figure + ".csv")));
  }
  for (const char* outside : {"src=", "href=", "@import", "url("})
    EXPECT_EQ(page.find(outside), std::string::npos) << outside;
  for (const char* words :
       {"<th>asked</th><th>the paper's</th><th>ours</th>", "why it differs", "LIBRA over MG-N",
        "+4.2 … +6.2 %", "H-N is Horovod", "MG-N is MG-WFBP", "MG-CF is"})
    EXPECT_NE(page.find(words), std::string::npos) << words;
}

TEST_F(CliReproduce, ReplacesOnlyItsOwnFilesAndOnlyIfForced) {
  fs::create_directories(file("out"));
  write("out/notes.txt", "mine");
  ASSERT_TRUE(succeeds(libra())) << "other files do not matter";
  const std::string figure = file("out/fig6.csv"), text = read_file(figure);
  const auto written = fs::last_write_time(figure);
  expect_refused(libra(), {"out", "index.html already", "--force"});
  EXPECT_EQ(written, fs::last_write_time(figure));
  EXPECT_TRUE(succeeds(libra("--force")));
  EXPECT_NE(written, fs::last_write_time(figure));
  EXPECT_EQ(text, read_file(figure));
  EXPECT_EQ("mine", read_file(file("out/notes.txt")));
}

// Before it computes for minutes.
TEST_F(CliReproduce, LooksForForeignFiguresFirst) {
  fs::create_directories(file("out"));
  for (const char* command : {"dualpipe --only table1", "mu-two --only fig8"}) {
    const std::string figure = std::string(command).substr(std::string(command).rfind(' ') + 1) + ".svg";
    write("out/" + figure, "mine");
    const Ended e = run(kTandem + "reproduce " + command + " --output " + file("out"));
    EXPECT_NE(0, e.status);
    EXPECT_NE(std::string::npos, e.err.find(figure + ", which no report")) << e.err;
    EXPECT_EQ(std::string::npos, (e.out + e.err).find("comput")) << e.out << e.err;
  }
}

TEST_F(CliReproduce, RefusesWhatItCannotWriteOrRead) {
  write("out", "a file");
  expect_refused(libra(), {"--output", "out", "directory"});
  fs::remove(file("out"));
  expect_refused(kTandem + "reproduce libra", {"--output"});
  expect_refused(kTandem + "reproduce", {"reproduce"});
  expect_refused(kTandem + "reproduce gpipe --output " + file("out"),
                 {"unknown command 'gpipe'", "libra, dualpipe, mu-two"});
  expect_refused(libra("--measured " + file("none.json")), {"none.json"});
  write("m.json", R"({"source": "here", "results": [{"network": "a", "policy": "se", "predicted_ms": 1}]})");
  expect_refused(libra("--measured " + file("m.json")), {"m.json", "\"measured_ms\""});
  write("m.json", R"({"source": "here", "results": []})");
  expect_refused(libra("--measured " + file("m.json")), {"m.json", "no entry"});
  EXPECT_FALSE(fs::exists(file("out"))) << "nothing is written";
}

TEST_F(CliReproduce, ShowsWhatWasMeasured) {
  write("m.json", R"({"source": "two <cores>", "results": [
    {"network": "net", "policy": "se", "predicted_ms": 11, "measured_ms": 10},
    {"network": "net", "policy": "libra", "predicted_ms": 9, "measured_ms": 9}]})");
  const Ended e = run(libra("--measured " + file("m.json")));
  ASSERT_EQ(0, e.status) << e.err;
  EXPECT_NE(e.out.find("error of the predicted backward time: 0.0 … 10.0 %, mean 5.0 %"), std::string::npos)
      << e.out;
  EXPECT_EQ(11, value("fig5.csv", "net,se,predicted"));
  EXPECT_EQ(9, value("fig5.csv", "net,libra,measured"));
  EXPECT_FALSE(fs::exists(file("out/fig8-measured.csv"))) << "the file has no such times";
  EXPECT_NE(read_file(file("out/index.html")).find("two &lt;cores&gt;"), std::string::npos);
  write("m.json", R"({"source": "here", "results": [
    {"network": "a", "policy": "se", "predicted_ms": 1, "measured_ms": 1, "compute_ms": 2, "communication_ms": 3},
    {"network": "b", "policy": "se", "predicted_ms": 1, "measured_ms": 1, "compute_ms": 4, "communication_ms": 5}]})");
  ASSERT_TRUE(succeeds(libra("--force --measured " + file("m.json"))));
  EXPECT_EQ(2, value("fig8-measured.csv", "a,se,computation"));
  EXPECT_EQ(5, value("fig8-measured.csv", "b,se,communication"));
}

TEST_F(CliReproduce, SystemsOfMuTwo) {
  const std::string mu_two =
      kTandem + "reproduce mu-two --networks dlrm --most-models 6 --output " + file("out") + " ";
  const Ended e = run(mu_two + "--only fig1,fig3,fig8");
  ASSERT_EQ(0, e.status) << e.err;
  expect_words(e.out, {"μ-TWO is never behind HFTA-Capuchin", "figures in"});
  expect_words(read_file(file("out/index.html")), {"DLRM 512 and 1024", "All 6 models fit without a plan"});
  const auto speedup = [this](const std::string& title, int models, const std::string& system) {
    return value("fig8.csv", fmt::format("\"DLRM{}, A100, 40 GB\",{},{}", title, models, system));
  };
  for (const int models : {2, 4, 6}) {
    SCOPED_TRACE(models);
    // Table 1's batch is so small that all systems train one array.
    for (const char* system : {"HFTA", "HFTA-Capuchin", "μ-TWO"}) EXPECT_EQ(1, speedup("", models, system));
    const auto ours = [&](const char* system) { return speedup(", batch of ours", models, system); };
    EXPECT_EQ(1, ours("HFTA"));
    EXPECT_GE(ours("μ-TWO"), ours("\"μ-TWO, greedy\"") * (1 - 1e-9));
    if (models == 6) continue;  // more than HFTA-Capuchin can train in one array
    EXPECT_GE(ours("μ-TWO"), ours("HFTA-Capuchin") * (1 - 1e-9));
  }
  EXPECT_EQ(value("fig1.csv", "GB,4,DLRM"), value("fig3c.csv", "DLRM,larger batch"));
  EXPECT_GT(value("fig3c.csv", "DLRM,larger batch"), value("fig3c.csv", "DLRM,smaller batch"));
  // The rooflines take as long for each model of an array as for one model: only the 10 µs become fewer.
  const std::string ms = "ms for each model and batch,";
  const auto roofline_ms = [&](const std::string& models) {
    return value("fig1.csv", ms + models + ",DLRM") * value("fig1.csv", "utilization," + models + ",DLRM");
  };
  EXPECT_NEAR(roofline_ms("1"), roofline_ms("8"), 0.01 * roofline_ms("1"));
  EXPECT_LT(2 * roofline_ms("1"), value("fig1.csv", ms + "1,DLRM")) << "more than half of the device is idle";
  // If a kernel takes long beside its operations, an array of eight takes as long as one model.
  ASSERT_TRUE(succeeds(mu_two + "--force --only fig1 --kernel-us 1e7"));
  EXPECT_NEAR(8, value("fig1.csv", ms + "1,DLRM") / value("fig1.csv", ms + "8,DLRM"), 0.01);
  EXPECT_GT(value("fig1.csv", "GB,8,DLRM"), 7 * value("fig1.csv", "GB,1,DLRM"));
  EXPECT_LT(value("fig1.csv", "utilization,1,DLRM"), 1e-3);
  expect_refused(kTandem + "reproduce mu-two --output x --only fig2", {"--only fig2", "fig1, fig3"});
  expect_refused(kTandem + "reproduce mu-two --output x --networks vgg16", {"--networks vgg16", "bert_base"});
  expect_refused(kTandem + "reproduce mu-two --output x --rounds 0", {"--rounds 0", "at least 1"});
}

// Four models with eight texts more. Of each of their words, 12 layers keep at least queries, keys, values,
// and the hidden layer, and the last one makes scores.
TEST_F(CliReproduce, TextsOfMuTwoHaveTheMostWords) {
  ASSERT_TRUE(
      succeeds(kTandem + "reproduce mu-two --networks bert_base --only fig3 --output " + file("out")));
  const double kept = (12 * (3 * 768 + 3072) + 30522) * 4.0;  // bytes
  EXPECT_GT(value("fig3c.csv", "BERT,larger batch") - value("fig3c.csv", "BERT,smaller batch"),
            4 * 8 * 512 * kept / 1e9);
  expect_words(read_file(file("out/index.html")), {"One model, 32 texts of 512 words"});
}

}  // namespace
}  // namespace tandem::testing
