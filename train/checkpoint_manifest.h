#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tandem {

inline constexpr const char* kManifest = "manifest.json";

/// The contents of a checkpoint's manifest. Its file also holds a checksum of them.
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

/// Throws Error unless all file names are different, consist of letters, digits, '-', '_' and '.', do not
/// begin with '.', and are not the manifest's name.
void check_names(const CheckpointManifest& manifest);

std::string to_json(const CheckpointManifest& manifest);
/// Reads a manifest. Throws Error naming the file unless `text` is, byte for byte, what `to_json` returns for
/// its contents, so no bit of it can change unnoticed.
CheckpointManifest manifest_from_json(const std::string& file, const std::string& text);

}  // namespace tandem
