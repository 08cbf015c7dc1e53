#include <tandem/plan/dense_tables.h>

#include <map>

#include <fmt/format.h>

#include <tandem/plan/build.h>

namespace tandem::engine {

std::vector<std::string> dense_tables(const Graph& forward, const Strategy& strategy) {
  if (!strategy.sparse_updates) return {};
  std::map<std::string, std::vector<std::string>> paths;  // by reason
  for (const TableUpdate& table : table_updates(forward, strategy))
    if (!table.why_not.empty()) paths[table.why_not].push_back(table.path);
  std::vector<std::string> lines;
  for (const auto& [why, tables] : paths) {
    const std::string updates =
        tables.size() == 1
            ? fmt::format("the update of table '{}' is", tables[0])
            : fmt::format("the updates of {} tables, such as '{}', are", tables.size(), tables[0]);
    lines.push_back(fmt::format("{} dense: {}", updates, why));
  }
  return lines;
}

}  // namespace tandem::engine
