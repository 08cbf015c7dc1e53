#pragma once
#include <charconv>
#include <cmath>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

namespace tandem::apps {

/// Returns the decimal number that the whole of `text` is. Throws CLI::ValidationError saying what is
/// accepted. CLI11 itself would read "010" as 8, -1 as a large unsigned number, and a number out of range as
/// the nearest in range.
template <class T> T decimal(const std::string& text) {
  using Limits = std::numeric_limits<T>;
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  bool whole_text = error == std::errc{} && end == text.data() + text.size();
  if constexpr (std::is_floating_point_v<T>) {
    if (!whole_text || !std::isfinite(value))
      throw CLI::ValidationError(fmt::format("'{}' is no finite decimal number, such as 0.05 or 1e-3", text));
  } else if (!whole_text) {
    const bool needs_range = std::is_unsigned_v<T> || error == std::errc::result_out_of_range;
    const std::string range = fmt::format(" from {} to {}", Limits::min(), Limits::max());
    throw CLI::ValidationError(fmt::format("'{}' is no whole number{}", text, needs_range ? range : ""));
  }
  return value;
}

/// Returns what stands between the commas of a list.
inline std::vector<std::string> parts_of(const std::string& list) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0, end = 0; end != std::string::npos; begin = end + 1) {
    end = list.find(',', begin);
    parts.push_back(list.substr(begin, end - begin));
  }
  return parts;
}

/// Returns the numbers of a list: "0.1,0.05".
template <class T> std::vector<T> decimals(const std::string& list) {
  std::vector<T> values;
  for (const std::string& part : parts_of(list)) values.push_back(decimal<T>(part));
  return values;
}

}  // namespace tandem::apps
