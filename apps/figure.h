#pragma once
#include <string>
#include <vector>

namespace tandem::apps {

/// A line, or the bars of one color: a value for each place of its panel. NaN means that there is none.
struct Series {
  std::string name;
  std::vector<double> values;
};

/// A bar of a timeline, from `begin` to `end`, with what it is written into it.
struct Box {
  std::string row, series, label;
  double begin = 0, end = 0;
};

/// A chart with axes of its own. Its name tells it from the other panels of the figure.
struct Panel {
  std::string name;
  std::vector<std::string> places;  ///< along the horizontal axis, evenly spaced
  std::vector<Series> series;       ///< the same names, in the same order, in all panels of a figure
  std::vector<Box> boxes{};         ///< of a timeline, which has neither places nor series
};

/// A figure of a paper, as numbers. All values are 0 or more.
struct Figure {
  enum class Kind { bars, stacked_bars, lines, timeline };
  std::string id;     ///< the name of its files: "fig6"
  std::string title;  ///< one line
  std::string text;   ///< what it shows, and how it was made
  Kind kind = Kind::bars;
  // What panels, places, series and values are: the names of the CSV's columns, and of the axes. `panel_name`
  // is empty if there is only one panel.
  std::string panel_name, place_name, series_name, value_name;
  std::vector<Panel> panels;
};

/// Returns a row for each value: panel (if panels have a name), place, series, value; and for each box of a
/// timeline: panel, row, series, label, begin, end. Numbers have all their digits.
std::string to_csv(const Figure& figure);

/// Returns the figure as an SVG image: a legend, and the panels in rows of two, or one below the other if it
/// is a timeline.
std::string to_svg(const Figure& figure);

/// Returns a text as HTML or XML shows it.
std::string escaped(const std::string& text);

}  // namespace tandem::apps
