#pragma once
#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace tandem::engine {

/// The system calls by which anything is saved that must survive a crash. A class, so that a test can make
/// any of them fail.
class Files {
 public:
  virtual ~Files() = default;
  static Files& system();

  // As the calls of these names: −1 on failure, and errno says why.
  virtual int open(const std::string& path, int flags, mode_t mode);
  virtual ssize_t write(int file, const void* data, std::size_t bytes);
  virtual int fsync(int file);
  virtual int close(int file);
  virtual int mkdir(const std::string& path);
  virtual int rename(const std::string& from, const std::string& to);
  virtual int unlink(const std::string& path);
  virtual int rmdir(const std::string& path);
};

/// Takes what is written, piece after piece.
using Sink = std::function<void(std::span<const std::byte>)>;

// What is interrupted (EINTR), or done in part, is gone on with. All throw Error naming the path and the
// reason.

/// Creates a file, or empties it, fills it with what `write` gives, and returns when it is on the disk.
void write_durably(Files& files, const std::string& path, const std::function<void(const Sink&)>& write);
/// The same for a file that others may read meanwhile: they find it whole, old or new. For a moment there is
/// also `path`.tmp.
void replace_durably(Files& files, const std::string& path, const std::function<void(const Sink&)>& write);
/// Renames a file or directory, and returns when that is on the disk.
void rename_durably(Files& files, const std::string& from, const std::string& to);
/// Returns when the names in a directory are on the disk.
void sync_directory(Files& files, const std::string& path);
void make_directory(Files& files, const std::string& path);
/// Makes a directory, and those it is in, unless they are there; those made are on the disk then.
void make_directories(Files& files, const std::string& path);
/// Removes a directory with the files in it, or what there is of it; directories inside are an Error. Of a
/// link the link alone.
void remove_directory(Files& files, const std::string& path);
/// The names in a directory, sorted; none where there is no such directory.
std::vector<std::string> names_in(const std::string& directory);

}  // namespace tandem::engine
