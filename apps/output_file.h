#pragma once
#include <initializer_list>
#include <iosfwd>
#include <string>

namespace tandem::apps {

/// Checks that a file can be written, before hours are spent on its contents. Does not change the file.
/// Throws Error naming `flag`, the file and the reason. An empty name means no file.
void require_writable(const std::string& flag, const std::string& file);

/// Returns the path of a regular file that a command may replace: `file`, or the one that it links to. Throws
/// Error naming `flag` if it is a device, a pipe, or a directory, if it cannot be written, or if it is one of
/// the command's inputs.
std::string replaceable(const std::string& flag, const std::string& file,
                        std::initializer_list<std::string> inputs);

/// Throws Error naming the file if reading it to its end failed; reaching the end is not a failure.
void require_read(const std::string& file, const std::istream& in);

/// Writes a whole file. If that fails, leaves no file and throws Error naming it.
void write_file(const std::string& file, const std::string& text);

}  // namespace tandem::apps
