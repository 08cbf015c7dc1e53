#include "toml_text.h"

#include <algorithm>
#include <charconv>
#include <sstream>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

// toml++ 3.3 asserts (in release builds: assumes) conditions that a file such as "[1, }" violates. Without
// its assertions it reports what is wrong.
#undef NDEBUG
#define TOML_ASSERT(condition) static_assert(true)
#if __has_include(<toml++/toml.hpp>)
#include <toml++/toml.hpp>
#else
#include <toml++/toml.h>  // before version 3.4
#endif

#include <tandem/core/base/error.h>

namespace tandem::apps {
namespace {

constexpr const char* kAccepted =
    "write flag = value: a number, true, false, a \"string\" or a [list] of these";

// These move U+0080 … U+FFFF of UTF-8 to U+100080 … U+10FFFF, which is for private use, and back. toml++ up
// to 3.4 has undefined behavior for some of the former outside strings.
std::string hidden(std::string_view text) {
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);  // a byte order mark
  std::string result;
  for (const char c : text)
    if ((c & 0xe0) == 0xc0)  // begins 2 bytes
      result += {'\xf4', '\x80', static_cast<char>(0x80 | (c & 0x1f))};
    else if ((c & 0xf0) == 0xe0)  // begins 3 bytes
      result += {'\xf4', static_cast<char>(0x80 | (c & 0x0f))};
    else
      result += c;
  return result;
}

std::string shown(std::string text) {
  for (std::size_t at = 0; (at = text.find('\xf4', at)) != text.npos && at + 3 < text.size(); ++at) {
    const char second = text[at + 1], third = text[at + 2];
    if (second == '\x80' && (third & 0x20) == 0)
      text.replace(at, 3, 1, static_cast<char>(0xc0 | (third & 0x1f)));
    else
      text.replace(at, 2, 1, static_cast<char>(0xe0 | (second & 0x0f)));
  }
  return text;
}

// Puts quotes around numbers that TOML does not have: .5, 1. and whole numbers from 2^63. Older versions of
// train_cifar wrote numbers as they were typed.
std::string with_quoted_numbers(const std::string& text) {
  std::istringstream in(text);
  std::string result;
  for (std::string line; std::getline(in, line); result += line + "\n") {
    const std::size_t equals = line.find(" = "), begin = equals + 3;
    if (equals == std::string::npos) continue;
    double number = 0;
    const char* const end = line.data() + line.size();
    const auto [stop, error] = std::from_chars(line.data() + begin, end, number);
    if (error == std::errc{} && stop == end) line = line.substr(0, begin) + "\"" + line.substr(begin) + "\"";
  }
  return result;
}

toml::table parsed(const std::string& text) {
  if (text.find('\xf4') != text.npos)  // which `hidden` uses
    throw Error("it has a character from U+100000 on, which is for private use; leave it out");
  try {
    return toml::parse(hidden(text));
  } catch (const toml::parse_error& e) {
    const bool lines_are_values = text.find("\"\"\"") == text.npos && text.find("'''") == text.npos;
    try {
      if (!lines_are_values) throw;
      return toml::parse(hidden(with_quoted_numbers(text)));
    } catch (const toml::parse_error&) {
      const toml::source_position at = e.source().begin;
      throw Error(fmt::format("line {}, column {}: {}; {}", at.line, at.column,
                              shown(std::string(e.description())), kAccepted));
    }
  }
}

std::string text_of(const std::string& key, const toml::node& value) {
  if (const auto* string = value.as_string()) {
    const std::string text = shown(string->get());
    if (text.find('\0') != text.npos)  // which ends a file's name early
      throw Error(
          fmt::format("line {}: '{}': its text has the character U+0000", value.source().begin.line, key));
    return text;
  }
  if (const auto* number = value.as_integer()) return fmt::format("{}", number->get());
  if (const auto* number = value.as_floating_point())
    return fmt::format("{:#}", number->get());  // 1.0, not 1
  if (const auto* flag = value.as_boolean()) return flag->get() ? "true" : "false";
  throw Error(fmt::format("line {}: '{}': sections, dates, and lists in lists are not accepted; {}",
                          value.source().begin.line, key, kAccepted));
}

std::string as_toml(const nlohmann::ordered_json& value) {
  if (value.is_array()) {
    std::vector<std::string> items;
    for (const auto& item : value) items.push_back(as_toml(item));
    return fmt::format("[{}]", fmt::join(items, ", "));
  }
  const bool too_large =
      value.is_number_unsigned() && !std::in_range<std::int64_t>(value.get<std::uint64_t>());
  if (!too_large && !value.is_string()) return value.dump();  // TOML writes numbers and booleans as JSON does
  std::ostringstream out;
  out << toml::toml_formatter(toml::value(too_large ? value.dump() : value.get<std::string>()),
                              toml::format_flags::allow_unicode_strings);
  return out.str();
}

}  // namespace

std::vector<TomlEntry> read_toml(const std::string& text) {
  std::vector<TomlEntry> entries;
  for (const auto& [name, value] : parsed(text)) {
    const std::string key = shown(std::string(name.str()));
    TomlEntry entry{key, {}, value.is_string(), static_cast<int>(value.source().begin.line)};
    if (const toml::array* const list = value.as_array())
      for (const toml::node& item : *list) entry.values.push_back(text_of(key, item));
    else
      entry.values.push_back(text_of(key, value));
    if (entry.values.empty())
      throw Error(fmt::format("line {}: '{}' is an empty list; leave the line out, or give it a value",
                              entry.line, key));
    entries.push_back(std::move(entry));
  }
  std::ranges::sort(entries, {}, &TomlEntry::line);
  return entries;
}

std::string to_toml(const nlohmann::ordered_json& values) {
  std::string text;
  for (const auto& [key, value] : values.items()) text += fmt::format("{} = {}\n", key, as_toml(value));
  return text;
}

}  // namespace tandem::apps
