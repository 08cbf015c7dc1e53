#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tandem {

inline constexpr const char* kManifest = "manifest.json";

/// What a checkpoint's manifest says. In its file there is also a checksum of all this.
struct CheckpointManifest {
  struct File {
    std::string name;
    std::int64_t bytes = 0;
    std::string xxh3;  ///< checksum.h
  };
  std::int64_t step = 0;
  std::optional<double> score;
  std::vector<File> files;
};

/// Throws Error unless the files have names of which each is another, of letters, digits, '-', '_' and '.',
/// and none begins with '.' or is the manifest's.
void check_names(const CheckpointManifest& manifest);

std::string to_json(const CheckpointManifest& manifest);
/// Throws Error naming the file unless `text` is, to the byte, what `to_json` gives: so no bit of it can
/// change unnoticed.
CheckpointManifest manifest_from_json(const std::string& file, const std::string& text);

}  // namespace tandem
