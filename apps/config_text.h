#pragma once
#include <string>
#include <vector>

namespace tandem::apps {

/// A line of a configuration: a name and its value, or the values of a list.
struct ConfigLine {
  std::string name;
  std::vector<std::string> values;
  bool quoted = false;  ///< the value is a string: "true" is no truth
  int line = 0;         ///< in the file, from 1
};

/// The lines of what TOML and INI files have in common: `name = value`, where a value is a "string" with the
/// escapes \" \\ \t \n, a 'string' without any, a list [a, b] over one or more lines, or what stands there up
/// to a comment, # … or ; …. Throws Error naming the line where it is anything else, a section, or a name
/// that was there before.
std::vector<ConfigLine> parse_config(const std::string& text);

/// A value as such a file has it: "runs/#1".
std::string config_string(const std::string& value);

}  // namespace tandem::apps
