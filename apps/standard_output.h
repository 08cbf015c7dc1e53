#pragma once
namespace tandem::apps {

/// Throws Error if standard output or standard error is closed: the next opened file would take its place,
/// and receive the printed text. Call it first.
void require_standard_output();

/// Throws Error if not all printed text could be written, for example to a full disk. Call it last.
void finish_standard_output();

}  // namespace tandem::apps
