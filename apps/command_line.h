#pragma once
#include <functional>

#include <CLI/CLI.hpp>

namespace tandem::apps {
/// Parses the command line of a program, and adds --version to it. Values cannot be empty, and numbers are
/// read as in decimal.h. Returns false if nothing is left to do, because help or version was printed. Throws
/// Error in one line: what is not understood, the flags that an unknown one resembles, and where all are
/// listed. `app` must have the program's name.
bool parse_command_line(CLI::App& app, int argc, char** argv);

/// Adds --config: a TOML file of lines `flag = value`, without the flags' dashes. A flag on the command line
/// overrides its value in the file. Parsing throws Error naming file and line if a key is not a flag, or is
/// only for the command line (Option::configurable).
void add_config(CLI::App& app);

/// Runs a program's main: parses its command line, calls `run`, and prints errors to standard error. Returns
/// the exit status: 0, or 1 if something threw or the output could not be written.
int run_program(CLI::App& app, int argc, char** argv, const std::function<void()>& run);

}  // namespace tandem::apps
