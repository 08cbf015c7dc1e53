#pragma once
#include <filesystem>
#include <set>
#include <string>

namespace tandem::testing {

/// The names of the op classes that the headers of a folder declare.
std::set<std::string> declared_ops(const std::filesystem::path& folder);

}  // namespace tandem::testing
