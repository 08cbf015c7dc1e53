#include "parse_bytes.h"

#include <algorithm>
#include <cctype>
#include <charconv>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <tandem/core/base/error.h>

namespace tandem::apps {

std::int64_t parse_bytes(const std::string& text) {
  constexpr double kMost = 1e15;
  double number = -1;
  const char* const end = text.data() + text.size();
  const std::string unit(std::from_chars(text.data(), end, number).ptr, end);
  std::string factor = "1" + unit;  // CLI11 knows the units, but multiplies only whole numbers
  try {
    if (std::ranges::all_of(unit, [](unsigned char c) { return std::isalpha(c) != 0; })) {
      CLI::AsSizeValue(/*kb_is_1000=*/true)(factor);
      if (const double bytes = number * std::stod(factor); bytes >= 1 && bytes <= kMost)
        return static_cast<std::int64_t>(bytes);
    }
  } catch (const CLI::ValidationError&) {  // no such unit
  }
  throw Error(fmt::format(
      "'{}' is no amount of memory; write bytes, or a number with K, M, G, T, kB, MB, GB or TB (powers of 1000), or "
      "with KiB, MiB, GiB or TiB (powers of 1024), in upper or lower case; at least 1 byte and at most {:.0f} GB",
      text, kMost / 1e9));
}

}  // namespace tandem::apps
