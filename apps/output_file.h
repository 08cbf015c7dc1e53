#pragma once
#include <string>

namespace tandem::apps {

/// Makes sure, before hours are spent on its contents, that a file can be written. Leaves what it holds.
/// Throws Error naming `flag`, the file and the reason. An empty name means no file.
void require_writable(const std::string& flag, const std::string& file);

/// Writes a whole file, or leaves none. Throws Error naming it.
void write_file(const std::string& file, const std::string& text);

}  // namespace tandem::apps
