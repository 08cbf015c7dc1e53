#include <tandem/datasets/record_file.h>

#include <fmt/format.h>

#include <tandem/core/base/error.h>
#include <tandem/datasets/dataset.h>

namespace tandem {
using namespace engine;
namespace {

InputFile opened(std::string file, const std::string& of) try {
  return {of + " file", std::move(file)};
} catch (const Error& e) {
  throw Error(fmt::format("{}; put {}'s file here", e.what(), of));
}

}  // namespace

RecordFile::RecordFile(std::string file, std::int64_t record_bytes, const std::string& of)
    : file_(opened(std::move(file), of)), record_bytes_(record_bytes) {
  const std::int64_t bytes = file_.size();
  if (bytes == 0) throw Error(fmt::format("{}: the file is empty; fetch or write it again", path()));
  if (const std::int64_t over = bytes % record_bytes; over != 0)
    throw Error(
        fmt::format("{}: short or oversized: {} bytes are {} whole {}-byte {} records and {} bytes over, "
                    "from offset {}; fetch or write it again",
                    path(), bytes, bytes / record_bytes, record_bytes, of, over, bytes - over));
  records_ = bytes / record_bytes;
}

void RecordFile::read(std::int64_t record, std::span<std::uint8_t> out) const try {
  file_.read(record * record_bytes_,
             std::as_writable_bytes(out.first(static_cast<std::size_t>(record_bytes_))));
} catch (const Error& e) {
  throw BadSample(fmt::format("{}, in record {}; check the disk, or fetch it again", e.what(), record));
}

}  // namespace tandem
