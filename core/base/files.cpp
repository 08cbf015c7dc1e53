#include <tandem/core/base/files.h>

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <regex>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include <tandem/core/base/error.h>

namespace tandem::engine {

namespace fs = std::filesystem;

Files& Files::system() {
  static Files files;
  return files;
}

int Files::open(const std::string& path, int flags, mode_t mode) { return ::open(path.c_str(), flags, mode); }
ssize_t Files::write(int file, const void* data, std::size_t bytes) { return ::write(file, data, bytes); }
int Files::fsync(int file) { return ::fsync(file); }
int Files::close(int file) { return ::close(file); }
int Files::mkdir(const std::string& path) { return ::mkdir(path.c_str(), 0777); }
int Files::rename(const std::string& from, const std::string& to) {
  return std::rename(from.c_str(), to.c_str());
}
int Files::unlink(const std::string& path) { return ::unlink(path.c_str()); }
int Files::rmdir(const std::string& path) { return ::rmdir(path.c_str()); }

namespace {

[[noreturn]] void fail(const std::string& what, const std::string& path) {
  throw Error(fmt::format("{} '{}': {}", what, path, std::system_category().message(errno)));
}

// Returns the result of a call, which is repeated while a signal interrupts it.
template <class Call> auto retried(const std::string& what, const std::string& path, Call call) {
  for (;;) {
    if (const auto result = call(); result >= 0) return result;
    if (errno != EINTR) fail(what, path);
  }
}

// An open file, which the destructor closes.
class Opened {
 public:
  Opened(Files& files, const std::string& path, int flags)
      : files_(files),
        path_(path),
        file_(retried("cannot open", path, [&] { return files.open(path, flags | O_CLOEXEC, 0666); })) {}
  ~Opened() {
    if (file_ >= 0) files_.close(file_);
  }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;

  void write(std::span<const std::byte> data) {
    while (!data.empty()) {
      const auto written = retried("cannot write", path_, [&] {
        const ssize_t n = files_.write(file_, data.data(), data.size());
        if (n == 0) errno = ENOSPC;
        return n == 0 ? -1 : n;
      });
      data = data.subspan(static_cast<std::size_t>(written));
    }
  }
  // On Linux an interrupted close has still closed the file. Other failures can mean lost data.
  void finish() {
    retried("cannot write to the disk", path_, [&] { return files_.fsync(file_); });
    if (files_.close(std::exchange(file_, -1)) != 0 && errno != EINTR) fail("cannot close", path_);
  }

 private:
  Files& files_;
  const std::string path_;
  int file_;
};

std::string parent_of(const std::string& path) {
  const fs::path parent = fs::path(path).parent_path();
  return parent.empty() ? "." : parent.string();
}

}  // namespace

void write_durably(Files& files, const std::string& path, const std::function<void(const Sink&)>& write) {
  Opened file(files, path, O_WRONLY | O_CREAT | O_TRUNC);
  write([&](std::span<const std::byte> data) { file.write(data); });
  file.finish();
}

// Processes that replace the same file do not write to one file.
std::string unfinished_name(const std::string& path) {
  return fmt::format("{}.{}{}", path, getpid(), kUnfinishedFile);
}

std::string finished_name(const std::string& unfinished) {
  static const std::regex name(std::string(R"((.+)\.\d+\)") + kUnfinishedFile);
  std::smatch parts;
  return std::regex_match(unfinished, parts, name) ? parts[1].str() : "";
}

void replace_durably(Files& files, const std::string& path, const std::function<void(const Sink&)>& write) {
  const std::string fresh = unfinished_name(path);
  std::error_code none;
  if (fs::exists(fs::symlink_status(fresh, none)))
    remove_file(files, fresh);  // else what it links to would be written
  try {
    write_durably(files, fresh, write);
    rename_durably(files, fresh, path);
  } catch (...) {
    files.unlink(fresh);
    throw;
  }
}

void rename_durably(Files& files, const std::string& from, const std::string& to) {
  retried("cannot rename to", to, [&] { return files.rename(from, to); });
  sync_directory(files, parent_of(to));
}

void sync_directory(Files& files, const std::string& path) {
  Opened(files, path, O_RDONLY | O_DIRECTORY).finish();
}

std::shared_ptr<const void> lock_directory(const std::string& path) {
  for (;;) {
    const int directory = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const auto lock = std::shared_ptr<const int>(new int(directory), [](const int* fd) {
      if (*fd >= 0) ::close(*fd);
      delete fd;
    });
    if (directory < 0) return lock;
    if (flock(directory, LOCK_EX | LOCK_NB) != 0) return errno == EWOULDBLOCK ? nullptr : lock;
    struct stat opened {
    }, named{};
    const bool is_gone =
        fstat(directory, &opened) == 0 &&
        (stat(path.c_str(), &named) != 0 || opened.st_ino != named.st_ino || opened.st_dev != named.st_dev);
    if (!is_gone) return lock;  // else it was removed before it was locked, and perhaps made again
  }
}

void make_directory(Files& files, const std::string& path) {
  retried("cannot make directory", path, [&] { return files.mkdir(path); });
}

void make_directories(Files& files, const std::string& path) {
  const fs::path directory = path;
  std::error_code error;
  if (directory.empty() || fs::is_directory(directory, error)) return;
  const std::string parent = parent_of(path), name = directory.filename().string();
  make_directories(files, parent);
  if (name.empty() || fs::is_directory(directory, error)) return;  // "a/b/", or "a/.." after making a
  try {
    make_directory(files, path);
  } catch (const Error&) {
    if (!fs::is_directory(directory, error)) {  // else another process has just made it
      if (fs::exists(directory, error)) throw Error(fmt::format("'{}' is not a directory", path));
      throw;
    }
  }
  sync_directory(files, parent);
}

void remove_file(Files& files, const std::string& path) {
  retried("cannot remove", path, [&] { return files.unlink(path); });
}

void remove_directory(Files& files, const std::string& path) {
  std::error_code error;
  const fs::file_type type = fs::symlink_status(path, error).type();
  if (type == fs::file_type::not_found) return;
  if (type == fs::file_type::symlink) return remove_file(files, path);
  for (const std::string& name : names_in(path)) remove_file(files, path + "/" + name);
  retried("cannot remove", path, [&] { return files.rmdir(path); });
}

// Does not use std::filesystem, whose iterator ends the process if it gets no memory.
std::vector<std::string> names_in(const std::string& directory) {
  std::vector<std::string> names;
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(opendir(directory.c_str()), closedir);
  if (!stream && errno == ENOENT) return names;
  while (stream) {
    errno = 0;  // tells the end from a failure
    const dirent* const entry = readdir(stream.get());
    if (!entry) break;
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  if (errno != 0) fail("cannot read directory", directory);
  std::ranges::sort(names);
  return names;
}

}  // namespace tandem::engine
