#include <tandem/core/base/input_file.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include <fmt/format.h>

#include <tandem/core/base/error.h>

namespace tandem::engine {

InputFile::InputFile(std::string what, std::string path) : what_(std::move(what)), path_(std::move(path)) {
  // O_NONBLOCK: a pipe without a writer is refused below, not waited for.
  descriptor_.reset(new int(open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)), [](const int* d) {
    if (*d >= 0) close(*d);
    delete d;
  });
  struct stat info {};
  if (*descriptor_ < 0 || fstat(*descriptor_, &info) != 0)
    throw Error(
        fmt::format("{} '{}' cannot be read: {}", what_, path_, std::system_category().message(errno)));
  if (!S_ISREG(info.st_mode)) throw Error(fmt::format("{} '{}' is no regular file", what_, path_));
  size_ = info.st_size;
}

void InputFile::read(std::int64_t offset, std::span<std::byte> out) const {
  for (std::size_t done = 0; done < out.size();) {
    const std::int64_t at = offset + static_cast<std::int64_t>(done);
    const auto got = pread(*descriptor_, out.data() + done, out.size() - done, at);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0)
      throw Error(fmt::format("{} '{}' cannot be read beyond offset {}: {}", what_, path_, at,
                              got < 0 ? std::system_category().message(errno) : "the file ends there"));
    done += static_cast<std::size_t>(got);
  }
}

}  // namespace tandem::engine
