#pragma once
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace tandem::apps {

/// Directories, the innermost first.
using Directories = std::vector<std::filesystem::path>;

/// Makes a directory and its parents, and returns those that it made. Throws Error if one cannot be made.
Directories make_with_parents(const std::string& directory);
/// Removes those that are empty.
void remove_empty(const Directories& directories);
/// Does so when the last copy of the result is gone.
std::shared_ptr<const Directories> removed_if_empty(Directories directories);

}  // namespace tandem::apps
