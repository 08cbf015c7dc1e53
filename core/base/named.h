#pragma once
#include <string>
#include <string_view>
#include <vector>

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

/// Throws the Error of `row_named`.
[[noreturn]] void refuse_name(std::string_view name, const std::vector<std::string>& known,
                              std::string_view what);

/// Returns the row that has this name. Throws Error that says what there is: "unknown WHAT 'NAME'; there
/// are: …".
template <class Table>
const auto& row_named(std::string_view name, const Table& table, std::string_view what) {
  for (const auto& row : table)
    if (row.name == name) return row;
  refuse_name(name, names_of(table), what);
}

}  // namespace tandem::engine
