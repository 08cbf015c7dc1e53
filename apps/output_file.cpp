#include "output_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>

#include <fmt/format.h>

#include <tandem/core/base/error.h>
#include <tandem/core/base/files.h>
#include <tandem/train/checkpoint_store.h>

#include "log.h"
#include "own_file.h"

namespace tandem::apps {

// Creates nothing, so that a kill leaves nothing.
void require_writable(const std::string& flag, const std::string& file) {
  namespace fs = std::filesystem;
  if (file.empty()) return;
  const auto refuse = [&] {
    throw Error(fmt::format("{} '{}' cannot be written: {}", flag, file, std::strerror(errno)));
  };
  std::error_code none;
  if (fs::is_fifo(file, none)) {  // opened and closed, it would be at its end for what reads it
    if (access(file.c_str(), W_OK) != 0) refuse();
    return;
  }
  if (fs::exists(file, none)) {
    const int opened = open(file.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    if (opened < 0) refuse();
    close(opened);
    return;
  }
  constexpr std::size_t kLongestName = NAME_MAX - 30;  // what is written has a longer name until it is whole
  if (fs::path(file).filename().native().size() > kLongestName) {
    errno = ENAMETOOLONG;
    refuse();
  }
  const fs::path parent = fs::path(file).parent_path();
  if (file.back() == '/') {
    errno = EISDIR;
    refuse();
  }
  if (!parent.empty() && fs::exists(parent, none) && !fs::is_directory(parent, none)) {
    errno = ENOTDIR;
    refuse();
  }
  if (access(parent.empty() ? "." : parent.c_str(), W_OK | X_OK) != 0) refuse();
}

void require_replaceable(const std::string& flag, const std::string& file, const std::string& kind) {
  std::error_code none;
  const bool holds_something =
      std::filesystem::is_regular_file(file, none) && std::filesystem::file_size(file, none) > 0;
  if (!file.empty() && holds_something && look_at(file, kind) == Found::foreign)
    throw Error(fmt::format(
        "{}{}'{}' exists, and Tandem did not write it as {}: it stays; choose another name, or move it away",
        flag, flag.empty() ? "" : " ", file,
        kind == "weights" || kind == "results" ? kind : fmt::format("a file of the kind \"{}\"", kind)));
  require_writable(flag, file);
}

std::string replaceable(const std::string& flag, const std::string& file, const std::string& kind,
                        std::initializer_list<std::string> inputs) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (fs::is_symlink(file, ignored) && !fs::exists(file, ignored))
    throw Error(fmt::format(
        "{} '{}' is a link that leads nowhere: it stays; make what it leads to, or remove it", flag, file));
  if (fs::exists(file, ignored) && !fs::is_regular_file(file, ignored))
    throw Error(fmt::format("{} '{}' is not a regular file", flag, file));
  for (const std::string& input : inputs)
    if (fs::equivalent(file, input, ignored))
      throw Error(fmt::format("{} '{}' would replace '{}', which is read", flag, file, input));
  require_replaceable(flag, file, kind);
  const fs::path target = fs::canonical(file, ignored);
  if (ignored) return file;
  if (const std::string checkpoint = target.parent_path().string(); is_own_checkpoint(checkpoint))
    throw Error(fmt::format("{} '{}' is a file of the checkpoint '{}': it stays; choose another name", flag,
                            file, checkpoint));
  return target.string();
}

void require_read(const std::string& file, const std::istream& in) {
  if (in.bad()) throw Error(fmt::format("'{}' cannot be read: {}", file, std::strerror(errno)));
}

namespace {

// Opens a file to write it. A pipe waits for what will read it.
std::ofstream opened(const std::string& file) {
  std::error_code none;
  const bool is_pipe = std::filesystem::is_fifo(file, none);
  const int pipe = is_pipe ? open(file.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC) : -1;
  if (is_pipe && pipe < 0 && errno == ENXIO)
    log_warning(fmt::format("waits for another program to read the pipe '{}'", file));
  errno = 0;
  std::ofstream out(file);
  if (pipe >= 0) close(pipe);  // only now, so that the pipe does not end for its reader
  return out;
}

// Removes a partial file, which would pass for the whole, but never a device.
void write_in_place(const std::string& file, const std::string& text) {
  std::ofstream out = opened(file);
  out << text;
  if (out.flush()) return;
  const std::string reason = std::strerror(errno);
  std::error_code ignored;
  if (const auto part = std::filesystem::canonical(file, ignored);
      std::filesystem::is_regular_file(part, ignored))
    std::filesystem::remove(part, ignored);
  throw Error(fmt::format("'{}' cannot be written: {}", file, reason));
}

}  // namespace

// A file takes the place of the old one when it is whole, unless its directory cannot be changed.
void write_file(const std::string& file, const std::string& text) {
  namespace fs = std::filesystem;
  std::error_code none;
  const fs::path target = fs::exists(file, none) ? fs::canonical(file, none) : fs::path(file),
                 directory = target.has_parent_path() ? target.parent_path() : ".";
  const bool is_link_to_nothing = !fs::exists(target, none) && fs::is_symlink(target, none);
  const bool is_device = fs::exists(target, none) && !fs::is_regular_file(target, none);
  if (is_device || is_link_to_nothing || access(directory.c_str(), W_OK) != 0)
    return write_in_place(file, text);
  try {
    engine::replace_durably(engine::Files::system(), target.string(),
                            [&](const engine::Sink& sink) { sink(std::as_bytes(std::span(text))); });
  } catch (const Error& e) {
    throw Error(fmt::format("'{}' cannot be written: {}", file, e.what()));
  }
}

void write_json(const std::string& file, const std::string& kind, const std::string& text) {
  require_replaceable("", file, kind);
  write_file(file, with_format(kind, text));
}

}  // namespace tandem::apps
