#pragma once
#include <iosfwd>
#include <string>

namespace tandem::apps {

/// Checks that a file can be written, before hours are spent on its contents. Does not change the file.
/// Throws Error naming `flag`, the file and the reason. An empty name means no file.
void require_writable(const std::string& flag, const std::string& file);

/// Throws Error naming the file if reading it to its end failed; reaching the end is not a failure.
void require_read(const std::string& file, const std::istream& in);

/// Writes a whole file. If that fails, leaves no file and throws Error naming it.
void write_file(const std::string& file, const std::string& text);

}  // namespace tandem::apps
