#pragma once
#include <cstdint>
#include <span>
#include <string>

#include <tandem/core/base/input_file.h>

namespace tandem {

/// A file of records of equal length, read one by one, from any thread. The file stays open.
class RecordFile {
 public:
  /// `of`: whose records, for messages. Throws Error naming the file when it cannot be opened, is empty, or
  /// is no whole number of records: how many bytes are over, and from which offset.
  RecordFile(std::string file, std::int64_t record_bytes, const std::string& of);
  std::int64_t records() const { return records_; }
  const std::string& path() const { return file_.path(); }
  /// The whole record. Throws BadSample naming file and offset when the disk does not give it.
  void read(std::int64_t record, std::span<std::uint8_t> out) const;

 private:
  engine::InputFile file_;
  std::int64_t record_bytes_, records_ = 0;
};

}  // namespace tandem
