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

/// Which checkpoints stay after a save.
struct Retention {
  int last = 2;            ///< number of newest ones; at least 2, so that there is one to fall back to
  std::int64_t every = 0;  ///< also those whose step is a multiple of this; 0: none
  bool best = false;       ///< also the one with the highest score; of equal ones, the newest
};

/// Returns whether a name in a directory of checkpoints is `step-N`, or what an interrupted save or removal
/// can leave of it: step-N.tandem-tmp, step-N.tandem-old.
bool names_checkpoint(const std::string& name);
/// Returns whether a directory of such a name is one that a CheckpointStore wrote, also partly: its manifest
/// says so, or it is empty.
bool is_own_checkpoint(const std::string& path);
/// Returns the name of an entry of such a directory that no CheckpointStore wrote; empty if there is none.
std::string foreign_entry(const std::string& path);
/// Returns the name of a file of a whole checkpoint that is not as it was saved; empty if there is none.
/// Reads all of them.
std::string changed_file(const std::string& path);
/// Removes a directory that a CheckpointStore wrote, with all files in it. Throws Error naming what cannot be
/// removed, and before it removes anything if there is a foreign_entry().
void remove_checkpoint(engine::Files& files, const std::string& path);

/// A file to save: `write` passes its contents to the sink.
struct CheckpointFile {
  std::string name;
  std::function<void(const engine::Sink&)> write;
};

/// A directory of checkpoints with one writer. If a save is interrupted anywhere, by an error, a kill or a
/// power cut, the directory holds either the old checkpoints, or these and the complete new one: a save
/// writes `step-N.tandem-tmp`, syncs each file to the disk, then renames the directory. A removal first
/// renames it to `step-N.tandem-old`.
class CheckpointStore {
 public:
  /// Creates the directory if it does not exist, and removes what interrupted saves left. Throws Error if it
  /// cannot be written, or if `retention` is out of range.
  explicit CheckpointStore(std::string directory, Retention retention = {},
                           engine::Files& files = engine::Files::system());
  const std::string& directory() const { return directory_; }

  /// Saves a checkpoint, and returns when it is on the disk and the ones that `retention` does not keep are
  /// removed. Replaces a damaged checkpoint of this step. Throws Error naming file and reason, and then loses
  /// nothing. Also throws if there is an intact checkpoint of this step or of a later one, which would be
  /// taken for the newest: a run that continues from an older checkpoint calls `remove_after` first, or uses
  /// another directory. `retention` counts only checkpoints whose every byte this store wrote or read.
  Checkpoint save(std::int64_t step, const std::vector<CheckpointFile>& files,
                  std::optional<double> score = {});
  /// Removes the checkpoints of later steps, also damaged ones. Throws Error naming what cannot be removed.
  void remove_after(std::int64_t step);

 private:
  std::string path(std::int64_t step) const;
  Checkpoint write(const std::string& path, std::int64_t step, const std::vector<CheckpointFile>& files,
                   std::optional<double> score);
  void replace(const std::string& unfinished, const std::string& whole);
  void remove(std::int64_t step);
  bool is_whole(std::int64_t step);
  bool is_shared(std::int64_t step) const;
  std::vector<std::int64_t> newest_whole();  // newest first, at most retention_.last
  std::optional<std::int64_t> best_whole();
  void prune();
  std::string directory_;
  Retention retention_;
  engine::Files& files_;
  std::set<std::int64_t> read_;  // steps whose every byte this store wrote or read
};

}  // namespace tandem
