#pragma once
#include <string>

#include <CLI/CLI.hpp>

namespace tandem::apps {

/// Adds --config: a TOML or INI file of `flag = value`, without the dashes. Flags on the command line come
/// before what it says. A key that is no flag is refused, naming key and file, and so is what only a command
/// line may say (Option::configurable).
void add_config(CLI::App& app);

/// A file for --config that says what was said: by flags, and by another file.
std::string to_config(const CLI::App& app);

}  // namespace tandem::apps
