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

std::string replaceable(const std::string& flag, const std::string& file,
                        std::initializer_list<std::string> inputs) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (fs::exists(file, ignored) && !fs::is_regular_file(file, ignored))
    throw Error(fmt::format("{} '{}' is not a regular file", flag, file));
  for (const std::string& input : inputs)
    if (fs::equivalent(file, input, ignored))
      throw Error(fmt::format("{} '{}' would replace '{}', which is read", flag, file, input));
  require_writable(flag, file);
  const fs::path target = fs::canonical(file, ignored);
  return ignored ? file : target.string();
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
