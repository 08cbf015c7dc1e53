#include "model_texts.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tandem/core/base/error.h>

namespace tandem::apps {

std::string of_models(const std::vector<double>& values, int decimals, const char* unit) {
  constexpr std::size_t kFewModels = 12;  // whose numbers fit a line
  const auto shown = [&](double x) { return std::isnan(x) ? "-" : fmt::format("{:.{}f}", x, decimals); };
  if (values.size() <= kFewModels) {
    std::vector<std::string> all;
    for (const double x : values) all.push_back(shown(x));
    return fmt::format("{}{}", fmt::join(all, ", "), unit);
  }
  std::vector<double> numbers;
  std::ranges::copy_if(values, std::back_inserter(numbers), [](double x) { return !std::isnan(x); });
  const std::string all = counted(std::ssize(values), "model");
  if (numbers.empty()) return "- of " + all;
  const auto [least, most] = std::ranges::minmax(numbers);
  const std::string of = numbers.size() == values.size() ? all : fmt::format("{} of {}", numbers.size(), all);
  return fmt::format("{} to {}{} of {}", shown(least), shown(most), unit, of);
}

std::string accuracy_line(const std::vector<double>& accuracy) {
  std::vector<double> percent;
  for (const double a : accuracy) percent.push_back(100 * a);
  return "test accuracy " + of_models(percent, 2, " %");
}

}  // namespace tandem::apps
