#pragma once
#include <string>

namespace tandem::apps {

/// Throws Error when standard output or standard error is closed: the file opened next would take its place,
/// and what is printed with it. To be called first.
void require_standard_output();

/// Throws Error when not all that was printed has been written, as on a full disk. To be called last.
void finish_standard_output();

/// Prints a line on standard error. Where that is impossible there is nobody left to tell: throws nothing.
void say_error(const std::string& line);

}  // namespace tandem::apps
