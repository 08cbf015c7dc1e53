#include <tandem/datasets/record_file.h>

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include <tandem/core/error.h>
#include <tandem/datasets/dataset.h>

namespace tandem {
namespace fs = std::filesystem;

RecordFile::RecordFile(fs::path file, std::int64_t record_bytes, std::string of)
    : file_(std::move(file)), record_bytes_(record_bytes) {
  std::error_code error;
  const auto bytes = static_cast<std::int64_t>(fs::file_size(file_, error));
  if (error)
    throw Error(
        fmt::format("{}: cannot be read: {}; put {}'s file here", file_.string(), error.message(), of));
  if (bytes == 0) throw Error(fmt::format("{}: the file is empty; fetch or write it again", file_.string()));
  if (const std::int64_t over = bytes % record_bytes; over != 0)
    throw Error(
        fmt::format("{}: short or oversized: {} bytes are {} whole {}-byte {} records and {} bytes over, "
                    "from offset {}; fetch or write it again",
                    file_.string(), bytes, bytes / record_bytes, record_bytes, of, over, bytes - over));
  records_ = bytes / record_bytes;
  descriptor_.reset(new int(open(file_.c_str(), O_RDONLY | O_CLOEXEC)), [](const int* d) {
    if (*d >= 0) close(*d);
    delete d;
  });
  if (*descriptor_ < 0)
    throw Error(fmt::format("{}: cannot be opened: {}; check its permissions", file_.string(),
                            std::system_category().message(errno)));
}

void RecordFile::read(std::int64_t record, std::span<std::uint8_t> out) const {
  const std::int64_t begin = record * record_bytes_;
  for (std::int64_t done = 0; done < record_bytes_;) {
    const auto got =
        pread(*descriptor_, out.data() + done, static_cast<std::size_t>(record_bytes_ - done), begin + done);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0)
      throw BadSample(
          fmt::format("{}: record {} cannot be read beyond offset {}: {}; check the disk, or fetch it again",
                      file_.string(), record, begin + done,
                      got < 0 ? std::system_category().message(errno) : "the file ends there"));
    done += got;
  }
}

}  // namespace tandem
