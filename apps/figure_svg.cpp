#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "figure.h"
#include "figure_drawing.h"

namespace tandem::apps {
namespace {

// Pixels. A panel is its plot and the margins around it; a lone panel is wider.
constexpr double kPlotWidth = 370, kWidePlot = 800, kPlotHeight = 220;
constexpr double kLeft = 62, kRight = 14, kTop = 30, kBottom = 46;
constexpr double kLegendRow = 22, kFontSize = 12;
constexpr int kColumns = 2;
constexpr int kMostLabels = 14;                          // of bars that have their value written above
constexpr std::size_t kMostPlaces = 12, kMostDots = 40;  // of a line
constexpr std::string_view kGridColor = "#d8d8d8", kTextColor = "#222";

using Kind = Figure::Kind;

// The step between lines of a grid: 1, 2 or 5 times a power of ten, for about five lines.
double grid_step(double most) {
  const double rough = most / 5, power = std::pow(10, std::floor(std::log10(rough)));
  for (const double times : {1.0, 2.0, 5.0})
    if (rough <= times * power) return times * power;
  return 10 * power;
}

// The largest value that is drawn, that of a whole stack.
double largest(const Figure& figure, const Panel& panel) {
  double most = 0;
  for (std::size_t i = 0; i < panel.places.size(); ++i) {
    double sum = 0;
    for (const Series& s : panel.series) {
      if (std::isnan(s.values[i])) continue;
      sum += s.values[i];
      most = std::max(most, figure.kind == Kind::stacked_bars ? sum : s.values[i]);
    }
  }
  return most > 0 ? most : 1;
}

// Draws one panel whose plot has its corner at 0, 0.
class Plot {
 public:
  Plot(const Figure& figure, const Panel& panel, double width)
      : figure_(figure), panel_(panel), width_(width), step_(grid_step(largest(figure, panel))) {
    most_ = step_ * std::ceil(largest(figure, panel) * 1.02 / step_);
    place_ = width / static_cast<double>(panel.places.size());
  }

  std::string svg() const {
    std::string text = axes();
    if (figure_.kind == Kind::lines)
      text += lines();
    else
      for (std::size_t i = 0; i < panel_.places.size(); ++i) text += bars(i);
    return text;
  }

 private:
  double y(double value) const { return kPlotHeight * (1 - value / most_); }
  double middle(std::size_t place) const { return place_ * (static_cast<double>(place) + 0.5); }

  std::string axes() const {
    std::string text = label(width_ / 2, -12, panel_.name, "middle", R"(font-weight="bold")");
    for (int k = 0; step_ * k <= most_ * (1 + 1e-9); ++k) {
      const double value = step_ * k;
      text += fmt::format(R"(<line x1="0" x2="{:.1f}" y1="{:.1f}" y2="{:.1f}" stroke="{}"/>)"
                          "\n",
                          width_, y(value), y(value), k == 0 ? kTextColor : kGridColor);
      text += label(-6, y(value) + 4, fmt::format("{:.6g}", value), "end");
    }
    const std::size_t every = figure_.kind == Kind::lines ? panel_.places.size() / kMostPlaces + 1 : 1;
    for (std::size_t i = 0; i < panel_.places.size(); i += every)
      text += label(middle(i), kPlotHeight + 17, panel_.places[i]);
    text += label(width_ / 2, kPlotHeight + 36, figure_.place_name);
    return text +
           label(-kPlotHeight / 2, 14 - kLeft, figure_.value_name, "middle", "transform=\"rotate(-90)\"");
  }

  std::string bars(std::size_t place) const {
    const bool stacked = figure_.kind == Kind::stacked_bars;
    const auto count = stacked ? 1.0 : static_cast<double>(panel_.series.size());
    const double bar = std::min(46.0, 0.82 * place_ / count), left = middle(place) - bar * count / 2;
    const bool labeled = stacked || panel_.places.size() * panel_.series.size() <= kMostLabels;
    std::string text;
    double base = 0;
    for (std::size_t s = 0; s < panel_.series.size(); ++s) {
      const double value = panel_.series[s].values[place];
      if (std::isnan(value)) continue;
      const double x = left + (stacked ? 0 : bar * static_cast<double>(s));
      text += rectangle(x + 0.5, y(base + value), bar - 1, kPlotHeight * value / most_, color(s));
      if (labeled && !stacked) text += number(x + bar / 2, value);
      if (stacked) base += value;
    }
    return stacked ? text + number(middle(place), base) : text;
  }

  std::string number(double x, double value) const {
    return label(x, y(value) - 3, fmt::format("{:.3g}", value), "middle", R"(font-size="10")");
  }

  std::string lines() const {
    std::string text;
    for (std::size_t s = 0; s < panel_.series.size(); ++s) {
      std::string points, dots;
      for (std::size_t i = 0; i < panel_.places.size(); ++i) {
        const double value = panel_.series[s].values[i];
        if (std::isnan(value)) continue;
        points += fmt::format("{:.1f},{:.1f} ", middle(i), y(value));
        if (panel_.places.size() > kMostDots) continue;
        dots += fmt::format(R"(<circle cx="{:.1f}" cy="{:.1f}" r="3" fill="{}"/>)"
                            "\n",
                            middle(i), y(value), color(s));
      }
      text += fmt::format(R"(<polyline points="{}" fill="none" stroke="{}" stroke-width="2"/>)"
                          "\n",
                          points, color(s));
      text += dots;
    }
    return text;
  }

  const Figure& figure_;
  const Panel& panel_;
  double width_, step_, most_ = 1, place_ = 1;
};

std::vector<std::string> names_of(const std::vector<Series>& series) {
  std::vector<std::string> names;
  for (const Series& s : series) names.push_back(s.name);
  return names;
}

}  // namespace

const char* color(std::size_t series) {
  // Okabe and Ito's colors, which readers with color blindness can tell apart.
  static constexpr std::array kColors{"#0072b2", "#e69f00", "#009e73", "#cc79a7",
                                      "#d55e00", "#56b4e9", "#7f7f7f"};
  return kColors[series % kColors.size()];
}

std::string label(double x, double y, const std::string& text, const std::string& anchor,
                  const std::string& more) {
  return fmt::format(R"(<text x="{:.1f}" y="{:.1f}" text-anchor="{}" {}>{}</text>)"
                     "\n",
                     x, y, anchor, more, escaped(text));
}

std::string rectangle(double x, double y, double width, double height, const char* fill) {
  return fmt::format(R"(<rect x="{:.2f}" y="{:.2f}" width="{:.2f}" height="{:.2f}" fill="{}"/>)"
                     "\n",
                     x, y, width, std::max(0.0, height), fill);
}

std::string legend(double x, const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t s = 0; s < names.size(); ++s) {
    text += rectangle(x, 6, 12, 12, color(s)) + label(x + 17, 16, names[s], "start");
    x += 40 + 7.2 * static_cast<double>(names[s].size());
  }
  return text;
}

std::string svg_begin(const Figure& figure, double width, double height) {
  return fmt::format(
      R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {0:.0f} {1:.0f}" width="{0:.0f}" height="{1:.0f}" )"
      R"(font-family="sans-serif" font-size="{2}" fill="{3}" role="img">)"
      "\n<title>{4}</title>\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
      width, height, kFontSize, kTextColor, escaped(figure.title));
}

std::string to_svg(const Figure& f) {
  if (f.kind == Kind::timeline) return timeline_svg(f);
  const int panels = static_cast<int>(std::ssize(f.panels)), columns = std::min(panels, kColumns);
  const double plot = panels == 1 ? kWidePlot : kPlotWidth;
  const double across = kLeft + plot + kRight, down = kTop + kPlotHeight + kBottom;
  const double width = across * columns, height = kLegendRow + down * std::ceil(panels / double(kColumns));
  std::string text = svg_begin(f, width, height);
  if (panels > 0) text += legend(kLeft, names_of(f.panels[0].series));
  for (int i = 0; i < panels; ++i)
    text += fmt::format("<g transform=\"translate({:.0f},{:.0f})\">\n{}</g>\n",
                        across * (i % kColumns) + kLeft, kLegendRow + down * (i / kColumns) + kTop,
                        Plot(f, f.panels[static_cast<std::size_t>(i)], plot).svg());
  return text + "</svg>\n";
}

}  // namespace tandem::apps
