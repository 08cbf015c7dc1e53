#include "output_file.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>

#include <tandem/core/base/error.h>

namespace tandem::apps {

void require_writable(const std::string& flag, const std::string& file) {
  if (file.empty()) return;
  std::error_code ignored;
  const bool existed = std::filesystem::exists(file, ignored);
  errno = 0;
  if (!std::ofstream(file, std::ios::app))
    throw Error(fmt::format("{} '{}' cannot be written: {}", flag, file, std::strerror(errno)));
  if (!existed) std::filesystem::remove(file, ignored);
}

void require_read(const std::string& file, const std::istream& in) {
  if (in.bad()) throw Error(fmt::format("'{}' cannot be read: {}", file, std::strerror(errno)));
}

void write_file(const std::string& file, const std::string& text) {
  errno = 0;
  std::ofstream out(file);
  out << text;
  if (out.flush()) return;
  const std::string reason = std::strerror(errno);
  std::error_code ignored;  // removes a partial file, which would pass for the whole, but never a device
  if (const auto part = std::filesystem::canonical(file, ignored);
      std::filesystem::is_regular_file(part, ignored))
    std::filesystem::remove(part, ignored);
  throw Error(fmt::format("'{}' cannot be written: {}", file, reason));
}

}  // namespace tandem::apps
