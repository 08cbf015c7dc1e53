#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tandem {

/// A checkpoint on the disk: a directory `step-N` whose manifest.json lists its files with sizes and
/// checksums (docs/checkpoints.md).
struct Checkpoint {
  std::string path;
  std::int64_t step = 0;
  std::optional<double> score;  ///< quality of the model: higher is better
  std::string digest;           ///< checksum of the manifest, and through it of all files

  std::string file(const std::string& name) const { return path + "/" + name; }
};

enum class CheckpointCheck { sizes, contents };

/// Returns the checkpoint in the directory `path`. Throws Error naming the file and its fault unless the
/// checkpoint is intact; `check` decides whether only file sizes or all bytes are compared.
Checkpoint read_checkpoint(const std::string& path, CheckpointCheck check);

/// Return "step-N", and the N of a name written exactly in this way; none for any other name.
std::string checkpoint_name(std::int64_t step);
std::optional<std::int64_t> checkpoint_step(const std::string& name);

/// Returns the numbers N of all `step-N` in the directory, intact or not, ascending; none if the directory
/// does not exist. Throws Error if it cannot be read.
std::vector<std::int64_t> checkpoint_steps(const std::string& directory);

/// Returns the checkpoint with the highest step in the directory in which every byte is as it was written;
/// none if there is none. Appends to `damaged` what is wrong with each checkpoint that it passed over.
std::optional<Checkpoint> newest_checkpoint(const std::string& directory, std::vector<std::string>& damaged);

}  // namespace tandem
