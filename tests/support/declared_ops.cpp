#include "declared_ops.h"

#include <regex>

#include "test_files.h"

namespace tandem::testing {

std::set<std::string> declared_ops(const std::filesystem::path& folder) {
  std::set<std::string> names;
  const std::regex name(R"(string_view name\(\) const override \{ return "([a-z_0-9]+)\"; \})");
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".h") continue;
    const std::string contents = read_file(entry.path());
    for (std::sregex_iterator i(contents.begin(), contents.end(), name), end; i != end; ++i)
      names.insert((*i)[1]);
  }
  return names;
}

}  // namespace tandem::testing
