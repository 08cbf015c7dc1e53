#pragma once
#include <cstddef>
#include <string>

#include <CLI/CLI.hpp>

namespace tandem::apps {

/// The most characters in a line of help.
inline constexpr std::size_t kHelpColumns = 100;

/// Returns the text with a line break wherever a line would have more than `width` characters. Its own line
/// breaks and indents stay. A word that is longer than a line keeps one to itself.
std::string wrapped(const std::string& text, std::size_t width);

/// Makes the help of a program and of its commands fit kHelpColumns.
void set_help_text(CLI::App& app);

}  // namespace tandem::apps
