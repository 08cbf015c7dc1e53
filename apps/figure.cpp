#include "figure.h"

#include <cmath>

#include <fmt/format.h>

namespace tandem::apps {
namespace {

std::string quoted(const std::string& cell) {
  if (cell.find_first_of(",\"\n") == std::string::npos) return cell;
  std::string text;
  for (const char c : cell) text += c == '"' ? std::string("\"\"") : std::string(1, c);
  return "\"" + text + "\"";
}

}  // namespace

// A figure whose panels have no name has no column for it.
std::string to_csv(const Figure& f) {
  const auto panel_cell = [&](const std::string& name) {
    return f.panel_name.empty() ? "" : quoted(name) + ",";
  };
  if (f.kind == Figure::Kind::timeline) {
    std::string text =
        fmt::format("{}{},{},label,begin,end\n", panel_cell(f.panel_name), f.place_name, f.series_name);
    for (const Panel& panel : f.panels)
      for (const Box& b : panel.boxes)
        text += fmt::format("{}{},{},{},{},{}\n", panel_cell(panel.name), quoted(b.row), quoted(b.series),
                            quoted(b.label), b.begin, b.end);
    return text;
  }
  std::string text = fmt::format("{}{},{},{}\n", panel_cell(f.panel_name), quoted(f.place_name),
                                 quoted(f.series_name), quoted(f.value_name));
  for (const Panel& panel : f.panels)
    for (std::size_t i = 0; i < panel.places.size(); ++i)
      for (const Series& s : panel.series)
        if (!std::isnan(s.values[i]))
          text += fmt::format("{}{},{},{}\n", panel_cell(panel.name), quoted(panel.places[i]), quoted(s.name),
                              s.values[i]);
  return text;
}

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) switch (c) {
      case '&': result += "&amp;"; break;
      case '<': result += "&lt;"; break;
      case '>': result += "&gt;"; break;
      case '"': result += "&quot;"; break;
      default: result += c;
    }
  return result;
}

}  // namespace tandem::apps
