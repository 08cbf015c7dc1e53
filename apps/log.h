#pragma once
#include <exception>
#include <string>
#include <vector>

namespace tandem::apps {

/// Returns the values of --log-level, from the most to the fewest messages: debug, info, warning, error.
const std::vector<std::string>& log_levels();

/// Sets the program's name and the lowest level that is printed. Ranks other than the main one print only
/// errors. Results, for which a program was started, are not messages: they are printed at every level.
void start_log(const std::string& program, const std::string& level = "info", bool main_rank = true);

// Any thread can call these. Debug and info go to standard output unchanged, warnings as "warning: …", and
// errors to standard error as "<program>: …"; failures to write are ignored. Text is UTF-8, one line or
// several.
void log_debug(const std::string& text);
void log_info(const std::string& text);
void log_warning(const std::string& text);
void log_error(const std::string& text);

/// Returns the message of an error; for std::bad_alloc, how much memory is free.
std::string message_of(const std::exception& error);

/// Draws a line on the terminal over the line drawn before; messages appear above it.
void draw_line(const std::string& line);
/// Ends the drawn line, which then stays on the terminal.
void end_line();
/// Returns whether standard output is a terminal on which a line can be drawn over: not a pipe, nor
/// one that TERM calls dumb or does not name.
bool is_drawable();

}  // namespace tandem::apps
