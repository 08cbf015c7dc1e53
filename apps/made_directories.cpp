#include "made_directories.h"

#include <system_error>
#include <utility>

#include <tandem/core/base/files.h>

namespace tandem::apps {

namespace fs = std::filesystem;

Directories make_with_parents(const std::string& directory) {
  std::error_code none;
  Directories made;
  for (fs::path path(directory); !path.empty() && !fs::exists(path, none); path = path.parent_path())
    made.push_back(path);
  engine::make_directories(engine::Files::system(), directory);
  return made;
}

void remove_empty(const Directories& directories) {
  std::error_code not_empty;
  for (const fs::path& path : directories) fs::remove(path, not_empty);
}

std::shared_ptr<const Directories> removed_if_empty(Directories directories) {
  return {new Directories(std::move(directories)), [](const Directories* made) {
            remove_empty(*made);
            delete made;
          }};
}

}  // namespace tandem::apps
