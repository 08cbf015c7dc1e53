#pragma once
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace tandem::apps {

/// A key of a TOML file and its value, in the form of a command line.
struct TomlEntry {
  std::string key;
  std::vector<std::string> values;  ///< one, or those of a list
  bool quoted = false;              ///< a string: "true" is not the value true
  int line = 0;                     ///< from 1
};

/// Returns the keys of a TOML file, in the order written. A value is a number, true, false, a string, or a
/// list of these. Throws Error naming the line for everything else: syntax errors, keys given twice,
/// sections, dates, empty lists.
std::vector<TomlEntry> read_toml(const std::string& text);

/// Returns an object of such values as TOML, one line per key. A whole number beyond TOML's range becomes a
/// string.
std::string to_toml(const nlohmann::ordered_json& values);

}  // namespace tandem::apps
