#pragma once
#include <filesystem>
#include <set>
#include <string>

namespace tandem::testing {

/// Returns the ids of this process's threads.
inline std::set<std::string> threads_of_process() {
  std::set<std::string> ids;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task"))
    ids.insert(thread.path().filename());
  return ids;
}

}  // namespace tandem::testing
