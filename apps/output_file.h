#pragma once
#include <initializer_list>
#include <iosfwd>
#include <string>

namespace tandem::apps {

/// Checks that a file can be written, before hours are spent on its contents. Does not change the file.
/// Throws Error naming `flag`, the file and the reason. An empty name means no file.
void require_writable(const std::string& flag, const std::string& file);

/// Does the same, and also throws Error if the file holds something that Tandem did not write as this kind
/// (own_file.h): such a file stays. Devices and pipes hold nothing.
void require_replaceable(const std::string& flag, const std::string& file, const std::string& kind);

/// Returns the path of a file of this kind, "weights" or "results", that a command may replace: `file`, or
/// the one that it links to. Throws Error naming `flag` if it is a device, a pipe, a directory, or a link to
/// nothing, if it cannot be written, or if it is one of the command's inputs, or of another kind.
std::string replaceable(const std::string& flag, const std::string& file, const std::string& kind,
                        std::initializer_list<std::string> inputs);

/// Throws Error naming the file if reading it to its end failed; reaching the end is not a failure.
void require_read(const std::string& file, const std::istream& in);

/// Writes a whole file: others, and a kill, find the old one or the new one. If that fails, throws Error
/// naming it.
void write_file(const std::string& file, const std::string& text);

/// Writes a JSON object with what says that Tandem wrote it as this kind (own_file.h). Throws Error if
/// `require_replaceable` would.
void write_json(const std::string& file, const std::string& kind, const std::string& text);

}  // namespace tandem::apps
