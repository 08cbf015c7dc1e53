#pragma once
#include <iosfwd>
#include <string>

namespace tandem::apps {

/// Makes sure, before hours are spent on its contents, that a file can be written. Leaves what it holds.
/// Throws Error naming `flag`, the file and the reason. An empty name means no file.
void require_writable(const std::string& flag, const std::string& file);

/// Throws Error naming the file where reading it to its end failed; the end alone is no failure.
void require_read(const std::string& file, const std::istream& in);

/// Writes a whole file, or leaves none. Throws Error naming it.
void write_file(const std::string& file, const std::string& text);

}  // namespace tandem::apps
