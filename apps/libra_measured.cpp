#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include <tandem/core/base/error.h>
#include <tandem/core/base/json_input.h>

#include "libra_simulation.h"

namespace tandem::apps {
namespace {

using engine::JsonInput;

struct Measured {
  std::string network, policy;
  double predicted_ms = 0, measured_ms = 0;       // of backward
  double compute_ms = -1, communication_ms = -1;  // as measured; below 0 if not given
};

struct MeasuredFile {
  std::string source;  // where it was measured
  std::vector<Measured> results;
};

MeasuredFile read(const std::string& file) {
  const std::string what = fmt::format("measured times '{}'", file);
  const JsonInput j = JsonInput::parse(what, engine::read_text("measured times", file));
  j.require_keys({"source", "results"});
  MeasuredFile measured{j["source"].required().text(), {}};
  constexpr double kLeast = 1e-9, kMost = 1e10;
  for (const JsonInput& item : j["results"].required().items()) {
    item.require_keys({"network", "policy", "predicted_ms", "measured_ms", "compute_ms", "communication_ms"});
    Measured& m = measured.results.emplace_back();
    m.network = item["network"].required().text();
    m.policy = item["policy"].required().text();
    m.predicted_ms = item["predicted_ms"].required().number(0, kLeast, kMost);
    m.measured_ms = item["measured_ms"].required().number(0, kLeast, kMost);
    m.compute_ms = item["compute_ms"].number(-1, 0, kMost);
    m.communication_ms = item["communication_ms"].number(-1, 0, kMost);
  }
  if (measured.results.empty()) throw Error(fmt::format("{}: \"results\" has no entry", what));
  return measured;
}

using Value = double Measured::*;

// A panel for each network: a place for each policy, a series for each value.
std::vector<Panel> panels_of(const std::vector<Measured>& results,
                             const std::vector<std::pair<std::string, Value>>& values) {
  std::vector<Panel> panels;
  for (const Measured& m : results) {
    if (panels.empty() || panels.back().name != m.network) {
      panels.push_back({m.network, {}, {}});
      for (const auto& [name, value] : values) panels.back().series.push_back({name, {}});
    }
    panels.back().places.push_back(m.policy);
    for (std::size_t v = 0; v < values.size(); ++v)
      panels.back().series[v].values.push_back(m.*values[v].second);
  }
  return panels;
}

}  // namespace

void add_measured(const std::string& file, Report& report) {
  const MeasuredFile measured = read(file);
  const auto& results = measured.results;
  const std::string source = "Measured: " + measured.source + ".";
  report.figures.push_back(
      {"fig5", "Fig. 5: predicted and measured backward time", source, Figure::Kind::bars, "network",
       "policy", "backward time", "ms",
       panels_of(results, {{"predicted", &Measured::predicted_ms}, {"measured", &Measured::measured_ms}})});
  const auto has_parts = [](const Measured& m) { return m.compute_ms >= 0 && m.communication_ms >= 0; };
  if (std::ranges::all_of(results, has_parts))
    report.figures.push_back({"fig8-measured", "Fig. 8, measured: computation and communication", source,
                              Figure::Kind::bars, "network", "policy", "part", "ms",
                              panels_of(results, {{"computation", &Measured::compute_ms},
                                                  {"communication", &Measured::communication_ms}})});
  std::vector<double> errors;
  double sum = 0;
  for (const Measured& m : results) {
    errors.push_back(std::abs(m.predicted_ms / m.measured_ms - 1));
    sum += errors.back();
  }
  const Range range = range_of(errors), paper{0, 0.07};  // less is no disagreement
  report.claims.push_back({"Fig. 5: error of the predicted backward time", "0.5 … 7.0 %, mean 2.7 %",
                           fmt::format("{:.1f} … {:.1f} %, mean {:.1f} %", 100 * range.least,
                                       100 * range.most, 100 * sum / static_cast<double>(errors.size())),
                           compared(paper, range), source});
}

}  // namespace tandem::apps
