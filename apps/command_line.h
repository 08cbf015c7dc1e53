#pragma once
#include <functional>
#include <string>

#include <CLI/CLI.hpp>

namespace tandem::apps {
/// Parses the command line of a program, to which --version is added. No value may be empty, and numbers are
/// read as decimal.h says. False when there is nothing left to do:
/// help or version were asked for, and printed. Throws Error in one line otherwise: what is not understood,
/// the flags that an unknown one resembles, and where all are listed. `app` must have the program's name.
bool parse_command_line(CLI::App& app, int argc, char** argv);

/// Adds --config: a TOML file of `flag = value`, the flags without their dashes. A flag on the command line
/// overrides its value in the file. A key that is no flag, or is for the command line alone
/// (Option::configurable), is an Error that names the file and the line.
void add_config(CLI::App& app);

/// A program's main: parses its command line, runs, and says on standard error what failed. The exit status:
/// 0, or 1 when something threw or what was printed could not be written.
int run_program(CLI::App& app, int argc, char** argv, const std::function<void()>& run);

}  // namespace tandem::apps
