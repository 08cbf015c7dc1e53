#pragma once
#include <string>
#include <vector>

namespace tandem::apps {

/// What --log-level takes, from the most to the fewest messages: debug, info, warning, error.
const std::vector<std::string>& log_levels();

/// Says who speaks, and from which level on. Ranks that are not the main one say errors alone. Results, what
/// a program was started for, are no messages: they are printed at every level.
void start_log(const std::string& program, const std::string& level = "info", bool main_rank = true);

// From any thread. Debug and info go to standard output as they are, warnings as "note: …", and errors to
// standard error as "<program>: …"; where that is impossible there is nobody left to tell. Text is UTF-8, a
// line or several.
void log_debug(const std::string& text);
void log_info(const std::string& text);
void log_warning(const std::string& text);
void log_error(const std::string& text);

/// Draws a line on the terminal in place of the one that was drawn so before; messages appear above it.
void draw_line(const std::string& line);
/// Leaves it as it is.
void end_line();

}  // namespace tandem::apps
