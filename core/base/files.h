#pragma once
#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace tandem::engine {

/// The system calls that save files which must survive a crash. They are virtual so that a test can make any
/// of them fail.
class Files {
 public:
  virtual ~Files() = default;
  static Files& system();

  // These do what the system calls of the same names do: on failure they return −1 and set errno.
  virtual int open(const std::string& path, int flags, mode_t mode);
  virtual ssize_t write(int file, const void* data, std::size_t bytes);
  virtual int fsync(int file);
  virtual int close(int file);
  virtual int mkdir(const std::string& path);
  virtual int rename(const std::string& from, const std::string& to);
  virtual int unlink(const std::string& path);
  virtual int rmdir(const std::string& path);
};

/// Takes the bytes of a file, piece after piece.
using Sink = std::function<void(std::span<const std::byte>)>;

// All of these continue calls that were interrupted (EINTR) or did only a part, and throw Error naming the
// path and the reason.

/// What the names of files end with that are not whole yet.
inline constexpr const char* kUnfinishedFile = ".tandem-tmp";

/// Returns the name under which this process writes what `path` is to be.
std::string unfinished_name(const std::string& path);
/// Returns what the file of such a name is to be; empty if it is no such name.
std::string finished_name(const std::string& unfinished);

/// Creates or empties a file, writes what `write` gives to its Sink, and returns when it is on the disk.
void write_durably(Files& files, const std::string& path, const std::function<void(const Sink&)>& write);
/// Does the same for a file that others can read meanwhile: they find the whole old file or the whole new
/// one. While it writes, a file named by unfinished_name() exists.
void replace_durably(Files& files, const std::string& path, const std::function<void(const Sink&)>& write);
/// Renames a file or directory, and returns when that is on the disk.
void rename_durably(Files& files, const std::string& from, const std::string& to);
/// Returns when the names in a directory are on the disk.
void sync_directory(Files& files, const std::string& path);
/// Locks a directory until the last copy of the result is gone, or the process ends. Returns nothing if
/// another process, or another caller in this one, has locked it. A directory that cannot be opened is not
/// locked, and the result is not empty.
std::shared_ptr<const void> lock_directory(const std::string& path);
void make_directory(Files& files, const std::string& path);
/// Makes a directory and its parents, unless they exist; returns when those that it made are on the disk.
void make_directories(Files& files, const std::string& path);
/// Removes a file, or a symbolic link.
void remove_file(Files& files, const std::string& path);
/// Removes a directory and its files, if it exists. Throws Error if it contains directories. If `path` is a
/// symbolic link, removes only the link.
void remove_directory(Files& files, const std::string& path);
/// Returns the names in a directory, sorted; none if the directory does not exist.
std::vector<std::string> names_in(const std::string& directory);

}  // namespace tandem::engine
