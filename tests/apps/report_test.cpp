// Figures as CSV and SVG, and how a result compares with a paper's.
#include "report.h"

#include <limits>

#include <gtest/gtest.h>

#include "claims.h"

namespace tandem::apps {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

std::size_t count(const std::string& text, const std::string& words) {
  std::size_t n = 0;
  for (std::size_t at = text.find(words); at != std::string::npos; at = text.find(words, at + 1)) ++n;
  return n;
}

Figure figure(Figure::Kind kind) {
  return {"f",    "A & B", "",
          kind,   "net",   "policy",
          "part", "ms",    {{"n<1", {"a", "b", "c"}, {{"x,y", {1, 2, kNone}}, {"z", {0.1, kNone, 3}}}}}};
}

TEST(Report, CsvHasAllDigitsOfTheValuesThatExist) {
  EXPECT_EQ("net,policy,part,ms\nn<1,a,\"x,y\",1\nn<1,a,z,0.1\nn<1,b,\"x,y\",2\nn<1,c,z,3\n",
            to_csv(figure(Figure::Kind::bars)));
  Figure one = figure(Figure::Kind::bars);
  one.panel_name = one.panels[0].name = "";
  EXPECT_EQ("policy,part,ms\na,\"x,y\",1\na,z,0.1\nb,\"x,y\",2\nc,z,3\n", to_csv(one));
}

TEST(Report, SvgDrawsEachValueThatExists) {
  // The background, two marks of the legend, and four bars.
  EXPECT_EQ(7U, count(to_svg(figure(Figure::Kind::bars)), "<rect "));
  EXPECT_EQ(7U, count(to_svg(figure(Figure::Kind::stacked_bars)), "<rect "));
  const std::string lines = to_svg(figure(Figure::Kind::lines));
  EXPECT_EQ(4U, count(lines, "<circle "));
  EXPECT_EQ(2U, count(lines, "<polyline "));
  EXPECT_NE(lines.find("<title>A &amp; B</title>"), std::string::npos);
  EXPECT_NE(lines.find(">n&lt;1<"), std::string::npos);
  EXPECT_EQ(lines.find("nan"), std::string::npos);
}

TEST(Report, AStackIsAsHighAsItsSum) {
  Figure f = figure(Figure::Kind::stacked_bars);
  f.panels[0].places = {"a"};
  f.panels[0].series = {{"x", {30}}, {"y", {50}}};
  const std::string svg = to_svg(f);  // an axis of 0 to 100: 20 steps of 20
  EXPECT_NE(svg.find(R"(height="66.00" fill="#0072b2")"), std::string::npos) << svg;
  EXPECT_NE(svg.find(R"(height="110.00" fill="#e69f00")"), std::string::npos) << svg;
}

TEST(Report, ComparesRanges) {
  EXPECT_EQ(Verdict::agrees, compared({0.04, 0.06}, {0.045, 0.065}));
  EXPECT_EQ(Verdict::overlaps, compared({0.04, 0.06}, {0.02, 0.05}));
  EXPECT_EQ(Verdict::direction, compared({0.04, 0.06}, {0.01, 0.02}));
  EXPECT_EQ(Verdict::differs, compared({0.04, 0.06}, {-0.01, 0.02}));
  EXPECT_EQ(Verdict::agrees, compared({-0.5, -0.5}, {-0.52, -0.52}));
  EXPECT_EQ(Verdict::direction, compared({-0.5, -0.5}, {-0.1, -0.1}));
  EXPECT_EQ(Verdict::differs, compared({-0.5, -0.5}, {0.1, 0.1}));
}

TEST(Report, ATimelineHasABoxForEachSpan) {
  Figure f{"f",    "",     "",   Figure::Kind::timeline,        "schedule",
           "lane", "pass", "ms", {{"a", {}, {}}, {"b", {}, {}}}};
  f.panels[0].boxes = {{"GPU 0", "forward", "0", 0, 2}, {"GPU 1", "backward", "1", 2, 4}};
  f.panels[1].boxes = {{"GPU 0", "forward", "2", 1, 1.5}};
  EXPECT_EQ(
      "schedule,lane,pass,label,begin,end\na,GPU 0,forward,0,0,2\na,GPU 1,backward,1,2,4\nb,GPU 0,forward,2,1,1.5\n",
      to_csv(f));
  const std::string svg = to_svg(f);
  EXPECT_EQ(6U, count(svg, "<rect ")) << "the background, two marks of the legend, and three boxes";
  EXPECT_NE(svg.find(R"(width="399.00")"), std::string::npos) << "half of 800, less the gap: " << svg;
  EXPECT_NE(svg.find(R"(width="99.00")"), std::string::npos) << "panels have one scale: " << svg;
}

TEST(Report, ALongLineHasFewLabelsAndNoDots) {
  Figure f = figure(Figure::Kind::lines);
  f.panels[0] = {"n", std::vector<std::string>(1000, "x"), {{"y", std::vector<double>(1000, 1)}}};
  EXPECT_EQ(0U, count(to_svg(f), "<circle "));
  EXPECT_GE(13U, count(to_svg(f), ">x</text>"));
}

TEST(Report, ComparesRatiosAndShares) {
  EXPECT_EQ(Verdict::agrees, ratio_claim("", 2.64, 2.4, "why").verdict);
  EXPECT_EQ("", ratio_claim("", 2.64, 2.4, "why").why);
  EXPECT_EQ(Verdict::direction, ratio_claim("", 2.64, 1.5, "why").verdict);
  EXPECT_EQ("why", ratio_claim("", 2.64, 1.5, "why").why);
  EXPECT_EQ("×1.5", ratio_claim("", 2.64, 1.5, "why").ours);
  EXPECT_EQ(Verdict::differs, ratio_claim("", 0.385, 1.2, "").verdict) << "faster, not slower";
  EXPECT_EQ(Verdict::agrees, share_claim("", 0.386, 0.39, "").verdict);
  EXPECT_EQ("38.6 %", share_claim("", 0.386, 0.2, "").paper);
  EXPECT_DOUBLE_EQ(2, geometric_mean({1, 4}));
  EXPECT_DOUBLE_EQ(2.5, mean({1, 4}));
}

}  // namespace
}  // namespace tandem::apps
