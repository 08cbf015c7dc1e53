#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace tandem::engine {

/// An open file that any thread can read at any offset.
class InputFile {
 public:
  /// `what` names it in errors: "checkpoint". Throws Error if it cannot be opened or is no regular file.
  InputFile(std::string what, std::string path);
  const std::string& path() const { return path_; }
  std::int64_t size() const { return size_; }
  /// Fills `out` with the bytes from `offset` on. Throws Error naming file and offset if there are fewer.
  void read(std::int64_t offset, std::span<std::byte> out) const;

 private:
  std::string what_, path_;
  std::shared_ptr<const int> descriptor_;
  std::int64_t size_ = 0;
};

}  // namespace tandem::engine
