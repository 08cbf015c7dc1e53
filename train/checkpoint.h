#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tandem {

/// A checkpoint that is on the disk: a directory `step-N` whose manifest.json lists its files with sizes and
/// checksums (docs/checkpoints.md).
struct Checkpoint {
  std::string path;
  std::int64_t step = 0;
  std::optional<double> score;  ///< how good the model was, the higher the better
  std::string digest;           ///< checksum of the manifest, and so of everything

  std::string file(const std::string& name) const { return path + "/" + name; }
};

enum class CheckpointCheck { sizes, contents };

/// Throws Error naming the file, and what is wrong with it, unless the directory `path` is a whole
/// checkpoint: as far as sizes tell, or every byte of it.
Checkpoint read_checkpoint(const std::string& path, CheckpointCheck check);

/// "step-N", and N of such a name, written in this way; none where it is another name.
std::string checkpoint_name(std::int64_t step);
std::optional<std::int64_t> checkpoint_step(const std::string& name);

/// The numbers N for which there is a `step-N` in the directory, whole or not, ascending; none where there is
/// no such directory. Throws Error where it cannot be read.
std::vector<std::int64_t> checkpoint_steps(const std::string& directory);

/// The checkpoint of the most steps in the directory of which every byte is as it was written; none where
/// there is none. What is wrong with those passed over is added to `damaged`.
std::optional<Checkpoint> newest_checkpoint(const std::string& directory, std::vector<std::string>& damaged);

}  // namespace tandem
