#include <algorithm>

#include <fmt/format.h>

#include "figure_drawing.h"

namespace tandem::apps {
namespace {

constexpr double kLeft = 78, kRight = 14, kPlotWidth = 800, kLegend = 26;
constexpr double kTitle = 24, kRow = 24, kAxis = 40, kGap = 1;
constexpr double kCharacter = 6.2;  // of a label in a box
constexpr const char* kFrame = "#888";

std::vector<std::string> unique(const std::vector<Panel>& panels, std::string Box::*name) {
  std::vector<std::string> names;
  for (const Panel& panel : panels)
    for (const Box& box : panel.boxes)
      if (std::ranges::find(names, box.*name) == names.end()) names.push_back(box.*name);
  return names;
}

std::size_t place_of(const std::vector<std::string>& names, const std::string& name) {
  return static_cast<std::size_t>(std::ranges::find(names, name) - names.begin());
}

double height_of(const Panel& panel) {
  return kTitle + kRow * static_cast<double>(unique({panel}, &Box::row).size()) + kAxis;
}

// One panel, whose corner is at 0, 0. All panels of a figure have the same scale.
std::string drawn(const Figure& figure, const Panel& panel, const std::vector<std::string>& series,
                  double from, double to) {
  std::vector<std::string> rows = unique({panel}, &Box::row);
  std::ranges::sort(rows);
  const auto x = [&](double value) { return kLeft + kPlotWidth * (value - from) / (to - from); };
  std::string text = label(kLeft + kPlotWidth / 2, kTitle - 9, panel.name, "middle", R"(font-weight="bold")");
  for (std::size_t r = 0; r < rows.size(); ++r)
    text += label(kLeft - 6, kTitle + kRow * (static_cast<double>(r) + 0.65), rows[r], "end");
  for (const Box& box : panel.boxes) {
    const double y = kTitle + kRow * static_cast<double>(place_of(rows, box.row));
    const double width = x(box.end) - x(box.begin);
    text += rectangle(x(box.begin) + kGap / 2, y + kGap, width - kGap, kRow - 2 * kGap,
                      color(place_of(series, box.series)));
    if (width > kCharacter * 1.2)
      text += label(x(box.begin) + width / 2, y + kRow * 0.68, box.label, "middle",
                    R"(font-size="11" fill="#fff")");
  }
  const double bottom = kTitle + kRow * static_cast<double>(rows.size());
  text += fmt::format(R"(<line x1="{0:.1f}" x2="{1:.1f}" y1="{2:.1f}" y2="{2:.1f}" stroke="{3}"/>)"
                      "\n",
                      kLeft, kLeft + kPlotWidth, bottom, kFrame);
  text += label(kLeft, bottom + 15, fmt::format("{:.4g}", from));
  text += label(kLeft + kPlotWidth, bottom + 15, fmt::format("{:.4g}", to), "end");
  return text + label(kLeft + kPlotWidth / 2, bottom + 15, figure.value_name);
}

}  // namespace

std::string timeline_svg(const Figure& figure) {
  const std::vector<std::string> series = unique(figure.panels, &Box::series);
  double height = kLegend, from = 0, to = 1e-9;
  bool first = true;
  for (const Panel& panel : figure.panels) {
    height += height_of(panel);
    for (const Box& box : panel.boxes) {
      from = first ? box.begin : std::min(from, box.begin);
      to = first ? box.end : std::max(to, box.end);
      first = false;
    }
  }
  std::string text = svg_begin(figure, kLeft + kPlotWidth + kRight, height) + legend(kLeft, series);
  double y = kLegend;
  for (const Panel& panel : figure.panels) {
    text += fmt::format("<g transform=\"translate(0,{:.0f})\">\n{}</g>\n", y,
                        drawn(figure, panel, series, from, to));
    y += height_of(panel);
  }
  return text + "</svg>\n";
}

}  // namespace tandem::apps
