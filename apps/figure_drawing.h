#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "figure.h"

namespace tandem::apps {

// What the kinds of figures draw alike, as parts of an SVG image. Units are pixels.

/// The color of a series, by its place in the legend.
const char* color(std::size_t series);
std::string label(double x, double y, const std::string& text, const std::string& anchor = "middle",
                  const std::string& more = "");
std::string rectangle(double x, double y, double width, double height, const char* fill);
/// The names of the series with their colors, in one line from `x` on, at the top of the image.
std::string legend(double x, const std::vector<std::string>& names);
/// The image up to its title and background.
std::string svg_begin(const Figure& figure, double width, double height);

/// Returns a timeline as an SVG image: the panels below each other, in each a row for each row of boxes.
std::string timeline_svg(const Figure& figure);

}  // namespace tandem::apps
