// tandem reproduce dualpipe: that its figures are those of formulas, of the simulator and of its own raw
// numbers, and what it refuses.
#include <algorithm>
#include <cmath>
#include <map>
#include <ranges>
#include <sstream>

#include <fmt/format.h>

#include "cli.h"

namespace tandem::testing {
namespace {

using nlohmann::json;

std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells{""};
  bool quoted = false;
  for (const char c : line) {
    if (c == '"')
      quoted = !quoted;
    else if (c == ',' && !quoted)
      cells.emplace_back();
    else
      cells.back() += c;
  }
  return cells;
}

class CliDualPipe : public Cli {
 protected:
  std::string command(const std::string& options) const {
    return kTandem + "reproduce dualpipe --output " + file("out") + " " + options;
  }
  std::string printed(const std::string& options) const {
    const Ended e = run(command(options));
    EXPECT_EQ(0, e.status) << e.err;
    return e.out;
  }
  // The rows of a CSV file, without its header.
  std::vector<std::vector<std::string>> rows(const std::string& csv) const {
    std::vector<std::vector<std::string>> result;
    std::istringstream lines(read_file(file("out/" + csv)));
    std::string line;
    std::getline(lines, line);
    while (std::getline(lines, line)) result.push_back(cells_of(line));
    return result;
  }
  // The sum of the last cells of the rows that begin with these cells.
  double total(const std::string& csv, const std::vector<std::string>& cells) const {
    double sum = 0;
    for (const auto& row : rows(csv))
      if (std::ranges::equal(cells, row | std::views::take(std::ssize(cells)))) sum += std::stod(row.back());
    return sum;
  }
  // The last cell of the row that begins with these cells.
  double value(const std::string& csv, const std::vector<std::string>& cells) const {
    for (const auto& row : rows(csv))
      if (std::ranges::equal(cells, row | std::views::take(std::ssize(cells)))) return std::stod(row.back());
    ADD_FAILURE() << csv << " has no row " << cells.back();
    return 0;
  }
};

// β = 0.885, ρ = 0.86 and the largest load on two stages: DualPipe has 4β/ρ, PipeDream takes B twice, Data P.
// computes for 61.1 % longer, and has the paper's share of communication.
TEST_F(CliDualPipe, FittedThroughputFollowsTheFormulas) {
  printed("--only fig10");
  const double r = 1.9;  // of the CNNs, whose transfers are short
  EXPECT_NEAR(4 * 0.885 / 0.86, value("fig10.csv", {"CNN, 4", "DualPipe"}), 0.01);
  EXPECT_NEAR(4 * 0.885 / (2 * r / (1 + r)), value("fig10.csv", {"CNN, 4", "PipeDream"}), 0.02);
  EXPECT_NEAR(4 * (1 - 0.498) / 1.611, value("fig10.csv", {"FCN + RNN, 4", "Data P."}), 1e-9);
  EXPECT_NEAR(4 * (1 - 0.036) / 1.611, value("fig10.csv", {"CNN, 4", "Data P."}), 1e-9);
  for (const std::string scheme : {"Data P.", "PipeDream", "DualPipe"}) {
    for (const std::string family : {"all six, 2", "all six, 4"})
      EXPECT_NEAR(value("fig10.csv", {family, "Data P."}) / value("fig10.csv", {family, scheme}),
                  total("fig11.csv", {family, scheme}), 1e-9);
  }
}

TEST_F(CliDualPipe, DrawsTheSchedulesOfThePaper) {
  const std::string out = printed("--only fig6,fig8");
  for (const char* part : {"(a)", "(b)", "(c)", "(d)"})
    EXPECT_NE(std::string::npos, out.find(fmt::format("agrees          Fig. 8{}", part))) << out;
  EXPECT_EQ(out.find("Table 1"), std::string::npos) << "only what was asked for";
  // Each device computes F and B of each batch once, and B of DualPipe begins with another batch's F.
  std::map<std::string, int> boxes;
  bool beside = false;
  const auto all = rows("fig6.csv");
  for (const auto& row : all) {
    ++boxes[row[0] + row[2]];
    for (const auto& other : all)
      beside |= row[0] == "DualPipe" && other[0] == "DualPipe" && row[2] == "forward" &&
                other[2] == "backward" && row[1].substr(0, 5) == other[1].substr(0, 5) && row[4] == other[4];
  }
  EXPECT_EQ((std::map<std::string, int>{{"DualPipebackward", 27},
                                        {"DualPipeforward", 27},
                                        {"PipeDreambackward", 27},
                                        {"PipeDreamforward", 27}}),
            boxes);
  EXPECT_TRUE(beside);
  const std::string page = read_file(file("out/index.html"));
  EXPECT_NE(page.find("Residual LSTM"), std::string::npos) << "says what the networks train on";
  EXPECT_NE(page.find(read_file(file("out/fig8.svg"))), std::string::npos);
}

// The SNN of the paper: 3072 → 2048, 31 layers of 2048, 2048 → 10; 2048 numbers per image cross a cut.
TEST_F(CliDualPipe, CountsWhatNetworksSend) {
  printed("--only fig3 --networks snn");
  const double weights = 4.0 * ((3072 * 2048 + 2048) + 31 * (2048 * 2048 + 2048) + (2048 * 10 + 10));
  EXPECT_NEAR(6 * weights / 1e6, value("fig3.csv", {"SNN", "Data P."}), 1e-6);
  EXPECT_NEAR(6 * 128 * 2048 * 4 / 1e6, value("fig3.csv", {"SNN", "pipeline"}), 1e-9);
}

// All six networks of the paper, and the Transformer's layers of 512 features beside 20,000 words.
TEST_F(CliDualPipe, CountsWhatAllNetworksOfThePaperSend) {
  printed("--only fig3 --batch-size 8");
  for (const char* network : {"VGG16", "ResNet-152", "Inception v4", "SNN", "Transformer", "Residual LSTM"})
    EXPECT_GT(value("fig3.csv", {network, "pipeline"}), 0) << network;
  EXPECT_NEAR(6 * 4.0 * (25'248'770 + 20'000 * 512) / 1e6, value("fig3.csv", {"Transformer", "Data P."}),
              1e-6);
  EXPECT_NE(read_file(file("out/index.html")).find("The paper calls Inception v4 the only exception"),
            std::string::npos);
}

// Texts of two classes.
TEST_F(CliDualPipe, TrainsOnTexts) {
  printed("--only table1 --networks residual_lstm --iterations 210 --seeds 1 --batch-size 8");
  for (const auto& row : rows("training-losses.csv")) EXPECT_LT(std::stod(row.back()), 5);
}

// The criterion of Fig. 13, and the rows of Table 1, from the raw numbers.
TEST_F(CliDualPipe, TrainsAndComparesByItsRawNumbers) {
  const std::string out =
      printed("--only table1,fig10 --networks mlp-residual --iterations 205 --seeds 2 --batch-size 8");
  EXPECT_NE(out.find("Table 1: highest accuracy, SpecTrain over Data P., mean"), std::string::npos) << out;
  EXPECT_EQ(4 * 2 * 205, std::ssize(rows("training-losses.csv")));
  std::map<std::string, std::map<std::string, std::vector<std::pair<double, double>>>>
      curves;  // seed, scheme
  for (const auto& row : rows("validations.csv"))
    curves[row[2]][row[1]].emplace_back(std::stod(row[3]), std::stod(row[5]));
  ASSERT_EQ(2u, curves.size());
  const auto best = [&](const std::string& seed, const std::string& scheme) {
    return std::ranges::max(curves.at(seed).at(scheme), {}, [](const auto& v) { return v.second; }).second;
  };
  std::map<std::string, double> times, mean;
  const std::map<std::string, std::string> of_throughput{
      {"Data P.", "Data P."}, {"PipeDream", "PipeDream"}, {"SpecTrain", "DualPipe"}};
  for (const std::string seed : {"1", "2"}) {
    EXPECT_EQ(200, curves.at(seed).at("SpecTrain").at(0).first);
    EXPECT_EQ(205, curves.at(seed).at("SpecTrain").at(1).first) << "also at the end";
    double target = 1;
    for (const auto& [scheme, name] : of_throughput) target = std::min(target, best(seed, scheme));
    for (const auto& [scheme, name] : of_throughput) {
      const auto& curve = curves.at(seed).at(scheme);
      const auto reached = std::ranges::find_if(curve, [&](const auto& v) { return v.second >= target; });
      times[scheme] += reached->first / value("fig10.csv", {"FCN + RNN, 4", name});
      mean[scheme] += 100 * best(seed, scheme) / 2;
    }
  }
  for (const auto& [scheme, name] : of_throughput) {
    EXPECT_NEAR(times[scheme] / times["Data P."], value("fig13.csv", {"residual MLP", scheme}), 1e-9);
    EXPECT_NEAR(mean[scheme], value("table1.csv", {"residual MLP", scheme, "mean"}), 1e-9);
  }
  const auto over_data = [&](const std::string& seed) {
    return 100 * (best(seed, "SpecTrain") - best(seed, "Data P."));
  };
  EXPECT_NE(
      std::string::npos,
      out.find(fmt::format("SpecTrain over Data P., mean: {:+.2f} points, by seed {:+.2f} to {:+.2f}",
                           (over_data("1") + over_data("2")) / 2, std::min(over_data("1"), over_data("2")),
                           std::max(over_data("1"), over_data("2")))))
      << out;
  EXPECT_NE(std::string::npos, out.find("not examined    Fig. 13: training time over that of Data P., CNN"))
      << "no CNN was trained\n"
      << out;
  const double ours = times["SpecTrain"] / times["Data P."];
  const double periods =
      value("fig10.csv", {"FCN + RNN, 4", "Data P."}) / value("fig10.csv", {"FCN + RNN, 4", "DualPipe"});
  EXPECT_NE(
      std::string::npos,
      read_file(file("out/index.html"))
          .find(fmt::format("The periods of Fig. 10 alone give {:.1f} %; the iterations, ×{:.3g}. They are "
                            "counted at validations, every 200 iterations",
                            100 * periods, ours / periods)));
}

TEST_F(CliDualPipe, MeasuresProfilesThatTheSimulatorReads) {
  const std::string out = printed("--only fig7 --networks resnet56 --batch-size 2");
  EXPECT_GT(value("fig7.csv", {"ResNet-56", "backward"}), 0.5);
  EXPECT_GT(value("fig10-measured.csv", {"ResNet-56, 2", "DualPipe, run"}), 0);
  std::map<std::string, double> period;
  for (const auto& [scheme, schedule] : {std::pair{"PipeDream", "pipedream"}, {"DualPipe", "spectrain"}})
    for (const std::string gpus : {"2", "4"}) {
      const std::string stages = fmt::format("out/ResNet-56-{}-stages-{}.json", gpus, scheme);
      const Ended e = run(kTandem + "sim pipeline --batches 200 --json --schedule data," + schedule +
                          " --profile " + file(stages));
      ASSERT_EQ(0, e.status) << e.err;
      const double single_ms = read(stages).at("single_ms");
      const json schedules = json::parse(e.out).at("schedules");
      period[scheme + gpus] = schedules[1].at("period_ms");
      EXPECT_NEAR(single_ms / schedules[0].at("period_ms").get<double>(),
                  value("fig10-measured.csv", {"ResNet-56, " + gpus, "Data P."}), 1e-9);
      EXPECT_NEAR(single_ms / period[scheme + gpus],
                  value("fig10-measured.csv", {"ResNet-56, " + gpus, scheme}), 1e-9);
      EXPECT_NEAR(value("fig10-measured.csv", {"ResNet-56, " + gpus, "Data P."}) /
                      value("fig10-measured.csv", {"ResNet-56, " + gpus, scheme}),
                  total("fig11-measured.csv", {"ResNet-56, " + gpus, scheme}), 1e-9);
    }
  EXPECT_NEAR(value("fig10-measured.csv", {"ResNet-56, 2", "Data P."}) /
                  value("fig10-measured.csv", {"ResNet-56, 2", "DualPipe, run"}),
              total("fig11-measured.csv", {"ResNet-56, 2", "DualPipe, run"}), 1e-9);
  EXPECT_GT(value("fig11-measured.csv", {"ResNet-56, 2", "DualPipe, run", "computing"}), 0);
  EXPECT_GT(value("fig11-measured.csv", {"ResNet-56, 2", "DualPipe, run", "idle, run"}), 0);
  EXPECT_NE(std::string::npos,
            out.find(fmt::format("(paper: ×{:.3g})", period["PipeDream2"] / period["DualPipe2"])))
      << "runs are compared with the simulator's gain\n"
      << out;
  EXPECT_EQ(4, std::ssize(rows("measured-cuts.csv")));
}

TEST_F(CliDualPipe, SaysWhichFiguresTakeNoneOfTheNetworks) {
  const Ended e = run(command("--only fig3,fig6,fig9 --networks resnet56,resnet20"));
  ASSERT_EQ(0, e.status) << e.err;
  EXPECT_TRUE(std::filesystem::exists(file("out/fig6.csv")));
  EXPECT_EQ(2, std::ssize(rows("fig3.csv"))) << "ResNet-56, two kinds of parallelism";
  EXPECT_FALSE(std::filesystem::exists(file("out/fig9.csv")));
  const std::string page = read_file(file("out/index.html"));
  for (const char* text : {"fig9 (predictions): none of --networks resnet56,resnet20; takes snn",
                           "--networks resnet20: no selected figure takes it"}) {
    EXPECT_NE(std::string::npos, e.err.find(text)) << e.err;
    EXPECT_NE(std::string::npos, page.find(text));
  }
  EXPECT_EQ(std::string::npos, e.err.find("fig6")) << "it takes no network";
  const Ended all = run(command("--only fig6 --force"));
  EXPECT_EQ("", all.err) << "nothing is left out without --networks";
}

// The rates of a network are multiples of its own, here of 0.005.
TEST_F(CliDualPipe, TrainsAtOtherRates) {
  printed("--only rates --networks mlp-residual --iterations 4 --seeds 1 --batch-size 4");
  for (const auto& [rule, rate] : {std::pair{"momentum", "0.05"}, std::pair{"momentum", "0.001"},
                                   std::pair{"ema", "0.5"}, std::pair{"raw+ema", "0.001"}})
    EXPECT_GT(value("rates.csv", {rule, rate, "SpecTrain"}), 0) << rule << ' ' << rate;
}

TEST_F(CliDualPipe, ComparesSchemesAtTheirBestRates) {
  const std::string out = printed(
      "--only rates --networks mlp-residual --sgd-rules momentum --rates 2,0.4 --iterations 40 --seeds 1 "
      "--batch-size 8");
  std::set<std::string> rules, rates;
  std::map<std::string, double> best;
  for (const auto& row : rows("rates.csv")) {
    rules.insert(row.at(0));
    rates.insert(row.at(1));
    best[row.at(2)] = std::max(best[row.at(2)], std::stod(row.at(3)));
  }
  EXPECT_EQ(std::set<std::string>{"momentum"}, rules);
  EXPECT_EQ((std::set<std::string>{"0.01", "0.002"}), rates);
  const auto over_data = [&](const std::string& scheme) {
    return fmt::format("{:+.2f} points", best.at(scheme) - best.at("Data P."));
  };
  for (const std::string scheme : {"Vanilla DualPipe", "PipeDream", "SpecTrain"})
    EXPECT_NE(std::string::npos,
              out.find(fmt::format("{} over Data P., mean: {}", scheme, over_data(scheme))))
        << out;
  const std::string page = read_file(file("out/index.html"));
  for (const std::string scheme : {"Vanilla DualPipe", "SpecTrain"})
    EXPECT_NE(std::string::npos, page.find(fmt::format("If B uses the weights of its F, {}: residual MLP",
                                                       over_data(scheme + ", B with F's weights"))))
        << scheme;
}

TEST_F(CliDualPipe, RefusesWhatItCannotDo) {
  expect_refused(command("--scale tiny"), {"--scale 'tiny'", "small or paper"});
  expect_refused(command("--only fig99"), {"--only 'fig99'", "fig6"});
  expect_refused(command("--networks lenet"), {"--networks 'lenet'", "vgg16"});
  expect_refused(command("--iterations -1"), {"--iterations"});
  expect_refused(command("--iterations 3"), {"--iterations 3", "at least 4"});
  expect_refused(command("--networks snn,resnet151"), {"--networks 'resnet151'", "vgg16"});
  expect_refused(command("--only rates --rates 1,0"), {"--rates 1,0", "above 0"});
  expect_refused(command("--only rates --rates fast"), {"'fast'"});
  expect_refused(command("--only rates --sgd-rules momentum,adam"), {"--sgd-rules 'adam'", "raw+ema"});
  expect_refused(command("--only rates --networks resnet56"),
                 {"nothing to compute", "rates", "mlp-residual"});
  std::filesystem::remove_all(file("out"));
  expect_refused(command("--only table1 --networks mlp-residual --data " + file("none")), {"none"});
  std::filesystem::remove_all(file("out"));
  printed("--only fig6");
  expect_refused(command("--only fig8"), {"index.html already", "--force"});
}

}  // namespace
}  // namespace tandem::testing
