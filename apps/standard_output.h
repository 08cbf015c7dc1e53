#pragma once
namespace tandem::apps {

/// Throws Error when standard output or standard error is closed: the file opened next would take its place,
/// and what is printed with it. To be called first.
void require_standard_output();

/// Throws Error when not all that was printed has been written, as on a full disk. To be called last.
void finish_standard_output();

}  // namespace tandem::apps
