#pragma once
#include <cstdint>
#include <span>
#include <string>

#include <tandem/core/base/input_file.h>

namespace tandem {

/// A file of records of equal length, read one by one, from any thread. The file stays open.
class RecordFile {
 public:
  /// `of` names the format in messages. Throws Error naming the file if it cannot be opened, is empty, or is
  /// not a whole number of records; then it also gives the number and the offset of the bytes left over.
  RecordFile(std::string file, std::int64_t record_bytes, const std::string& of);
  std::int64_t records() const { return records_; }
  const std::string& path() const { return file_.path(); }
  /// Reads the whole record. Throws BadSample naming file and offset if the disk cannot be read.
  void read(std::int64_t record, std::span<std::uint8_t> out) const;

 private:
  engine::InputFile file_;
  std::int64_t record_bytes_, records_ = 0;
};

}  // namespace tandem
