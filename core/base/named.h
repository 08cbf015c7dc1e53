#pragma once
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tandem/core/base/error.h>

namespace tandem::engine {

/// A row of a table of values that users know by name.
template <class T> struct Named {
  std::string_view name;
  T value;
};

/// Returns the names of a table's rows, in order. A row is a Named, or has a member `name` as well.
template <class Table> std::vector<std::string> names_of(const Table& table) {
  std::vector<std::string> names;
  for (const auto& row : table) names.emplace_back(row.name);
  return names;
}

/// Returns the row that has this name. Throws Error that says what there is: "unknown WHAT 'NAME'; there
/// are: …".
template <class Table>
const auto& row_named(std::string_view name, const Table& table, std::string_view what) {
  for (const auto& row : table)
    if (row.name == name) return row;
  throw Error(fmt::format("unknown {} '{}'; there are: {}", what, name, fmt::join(names_of(table), ", ")));
}

}  // namespace tandem::engine
