#include "log.h"

#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>
#include <string_view>

#include <fmt/format.h>
#include <spdlog/details/log_msg.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/base_sink.h>

#include <tandem/core/base/memory.h>

namespace tandem::apps {
namespace {

struct Level {
  const char* name;
  spdlog::level::level_enum level;
};
constexpr std::array kLevels{Level{"debug", spdlog::level::debug}, Level{"info", spdlog::level::info},
                             Level{"warning", spdlog::level::warn}, Level{"error", spdlog::level::err}};

// Writes to standard output and standard error, and keeps track of the line drawn last on the terminal.
class Console final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  void name(const std::string& program) {
    const std::lock_guard lock(mutex_);
    program_ = program;
  }
  void draw(const std::string& line) {
    const std::lock_guard lock(mutex_);
    put(stdout, "\r" + line + "\x1b[K");
    drawn_ = true;
  }
  void end() {
    const std::lock_guard lock(mutex_);
    if (drawn_) put(stdout, "\n");
    drawn_ = false;
  }

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    if (drawn_) put(stdout, "\r\x1b[K");
    drawn_ = false;
    const std::string text(message.payload.data(), message.payload.size());
    if (message.level >= spdlog::level::err)
      put(stderr, program_ + ": " + text + "\n");
    else
      put(stdout, (message.level == spdlog::level::warn ? "warning: " : "") + text + "\n");
  }
  void flush_() override {}
  static void put(std::FILE* file, const std::string& text) {
    std::fputs(text.c_str(), file);
    std::fflush(file);
  }

  std::string program_ = "tandem";
  bool drawn_ = false;
};

// A process has one standard output.
const std::shared_ptr<Console>& console() {
  static const auto sink = std::make_shared<Console>();
  return sink;
}
spdlog::logger& logger() {
  static spdlog::logger all("tandem", console());
  return all;
}

}  // namespace

const std::vector<std::string>& log_levels() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Level& l : kLevels) all.emplace_back(l.name);
    return all;
  }();
  return names;
}

void start_log(const std::string& program, const std::string& level, bool main_rank) {
  console()->name(program);
  for (const Level& l : kLevels)
    if (l.name == level) logger().set_level(main_rank ? l.level : spdlog::level::err);
}

void log_debug(const std::string& text) { logger().debug(spdlog::string_view_t(text)); }
void log_info(const std::string& text) { logger().info(spdlog::string_view_t(text)); }
void log_warning(const std::string& text) { logger().warn(spdlog::string_view_t(text)); }
void log_error(const std::string& text) { logger().error(spdlog::string_view_t(text)); }

std::string message_of(const std::exception& error) {
  if (!dynamic_cast<const std::bad_alloc*>(&error)) return error.what();
  return fmt::format("out of memory: {:.1f} MB are free", 1e-6 * static_cast<double>(engine::free_memory()));
}

void draw_line(const std::string& line) {
  if (logger().should_log(spdlog::level::info)) console()->draw(line);
}
void end_line() { console()->end(); }
bool is_drawable() {
  const char* const term = std::getenv("TERM");
  const std::string_view kind = term ? term : "";
  return isatty(STDOUT_FILENO) != 0 && !kind.empty() && kind != "dumb";
}

}  // namespace tandem::apps
