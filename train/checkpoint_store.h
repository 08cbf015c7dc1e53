#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <tandem/core/base/files.h>
#include <tandem/train/checkpoint.h>

namespace tandem {

/// Which checkpoints stay when a new one is there.
struct Retention {
  int last = 2;            ///< the newest so many; at least 2, so that there is one to fall back to
  std::int64_t every = 0;  ///< and those of every so many steps; 0: none for that
  bool best = false;       ///< and the one with the highest score, the newest of them
};

/// A file to be saved: `write` gives its contents.
struct CheckpointFile {
  std::string name;
  std::function<void(const engine::Sink&)> write;
};

/// A directory of checkpoints that one writer adds to. A save that ends anywhere, by an error, a kill or a
/// power cut, leaves either the checkpoints there were, or these and the new one, whole: it is written as
/// `step-N.tmp`, brought to the disk file by file, then renamed. One to be removed is `step-N.old` first.
class CheckpointStore {
 public:
  /// Makes the directory, if need be, and removes what broken saves left. Throws Error when it cannot be
  /// written, or `retention` is out of range.
  explicit CheckpointStore(std::string directory, Retention retention = {},
                           engine::Files& files = engine::Files::system());
  const std::string& directory() const { return directory_; }

  /// Returns when the checkpoint is on the disk, and what `retention` gives up is gone. A damaged checkpoint
  /// of this step is replaced. Throws Error naming file and reason; nothing is lost then. So it does where
  /// there is one of a later step, which would be taken for the newest: a run that goes on from an older one
  /// calls `remove_after` first, or has a directory of its own. Only checkpoints of
  /// which this store knows every byte, since it wrote or read it, count among those that `retention` keeps.
  Checkpoint save(std::int64_t step, const std::vector<CheckpointFile>& files,
                  std::optional<double> score = {});
  /// Removes the checkpoints of later steps, damaged ones too. Throws Error naming what could not be removed.
  void remove_after(std::int64_t step);

 private:
  std::string path(std::int64_t step) const;
  Checkpoint write(const std::string& path, std::int64_t step, const std::vector<CheckpointFile>& files,
                   std::optional<double> score);
  void replace(const std::string& unfinished, const std::string& whole);
  void remove(std::int64_t step);
  bool is_whole(std::int64_t step);
  std::vector<std::int64_t> newest_whole();  // from the newest down, as many as are kept
  std::optional<std::int64_t> best_whole();
  void prune();
  std::string directory_;
  Retention retention_;
  engine::Files& files_;
  std::set<std::int64_t> read_;  // steps of which every byte was seen
};

}  // namespace tandem
