#pragma once
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

namespace tandem::testing {
using namespace engine;

/// A file in memory that holds a fuzzer's bytes and exists as long as this object.
class FuzzedFile {
 public:
  FuzzedFile(const std::uint8_t* data, std::size_t size) : file_(memfd_create("fuzzed", 0)) {
    if (file_ < 0 || write(file_, data, size) != static_cast<ssize_t>(size)) std::abort();
  }
  ~FuzzedFile() { close(file_); }
  FuzzedFile(const FuzzedFile&) = delete;
  FuzzedFile& operator=(const FuzzedFile&) = delete;
  std::string path() const { return "/proc/self/fd/" + std::to_string(file_); }

 private:
  int file_;
};

}  // namespace tandem::testing
