#include "own_file.h"

#include <filesystem>
#include <fstream>
#include <regex>
#include <string_view>

#include <fmt/format.h>

#include <tandem/train/event_file.h>

namespace tandem::apps {
namespace {

namespace fs = std::filesystem;

bool begins_with(const std::string& head, const std::string& pattern) {
  return std::regex_search(head, std::regex(pattern), std::regex_constants::match_continuous);
}

// A safetensors file: the length of its header in eight bytes, then the header, whose first entry says the
// writer.
bool begins_as_weights(const std::string& head) {
  return head.size() > 8 && begins_with(head.substr(8), R"(\{"__metadata__":\{[^}]*"writer":"tandem")");
}

bool begins_as(const std::string& head, const std::string& kind) {
  if (head.empty()) return kind == "metrics" || kind == "events" || kind == "collectives";
  if (kind == "config") return head.starts_with(kConfigHead);
  if (kind == "page") return head.starts_with(kPageHead);
  if (kind == "table") return head.starts_with(kTableHead);
  if (kind == "metrics") return begins_with(head, R"(\{"epoch":\d+,"images_per_second":)");
  if (kind == "collectives") return begins_with(head, R"(\{"all_called":)");
  if (kind == "events") return begins_as_event_file(head);
  if (kind == "weights") return begins_as_weights(head);
  return begins_with(head, fmt::format(R"re(\s*\{{\s*"format"\s*:\s*"tandem {}")re", kind));
}

}  // namespace

Found look_at(const std::string& file, const std::string& kind) {
  std::error_code none;
  if (!fs::exists(fs::symlink_status(file, none))) return Found::nothing;
  if (!fs::is_regular_file(file, none)) return Found::foreign;
  std::string head(256, '\0');
  std::ifstream in(file, std::ios::binary);
  in.read(head.data(), std::ssize(head));
  head.resize(static_cast<std::size_t>(in.gcount()));
  return begins_as(head, kind) ? Found::own : Found::foreign;
}

std::string with_format(const std::string& kind, const std::string& json) {
  const std::size_t first = json.find_first_not_of(" \n", 1);
  const bool is_empty = json.at(first) == '}';
  return fmt::format("{{\n \"format\": \"tandem {}\"{}{}", kind, is_empty ? "\n" : ",\n ",
                     std::string_view(json).substr(first));
}

}  // namespace tandem::apps
