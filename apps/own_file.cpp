#include "own_file.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <span>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include <tandem/core/base/checksum.h>
#include <tandem/train/event_file.h>

namespace tandem::apps {
namespace {

namespace fs = std::filesystem;

bool begins_with(const std::string& head, const std::string& pattern) {
  return std::regex_search(head, std::regex(pattern), std::regex_constants::match_continuous);
}

// A safetensors file: the length of its header in eight bytes, then the header, whose first entry says the
// writer, and whether it holds weights or the results of `tandem forward`.
bool begins_as_tensors(const std::string& head, const std::string& kind) {
  const std::string entry = head.size() > 8 ? head.substr(8, head.find('}') - 8) : "";
  const bool holds_results = entry.find(R"("holds":"results")") != entry.npos;
  return begins_with(entry, R"(\{"__metadata__":\{.*"writer":"tandem")") &&
         holds_results == (kind == "results");
}

std::vector<std::string_view> cells_of(std::string_view line) {
  std::vector<std::string_view> cells;
  for (std::size_t end = 0; end != line.npos; line.remove_prefix(std::min(line.size(), end + 1))) {
    end = line.find(',');
    cells.push_back(line.substr(0, end));
  }
  return cells;
}

// Whether a cell holds what a run writes there: a number, or nothing.
bool is_value(std::string_view cell) {
  const std::string text(cell);
  char* end = nullptr;
  std::strtod(text.c_str(), &end);
  return *end == '\0';
}

// Whether a column of a summary.csv has a name that a run gives it; those of models end with their number.
bool is_column(std::string_view name) {
  static const std::set<std::string_view> names{
      "of", "epoch", "batch", "train_loss", "test_accuracy", "lr", "step_ms", "images_per_second"};
  const std::size_t last = name.find_last_not_of("0123456789");
  const bool has_number = last != name.npos && last + 1 < name.size() && name[last] == '_';
  return names.contains(has_number ? name.substr(0, last) : name);
}

// Whether a line is a row of a summary.csv, or may become one where a kill has cut it short.
bool is_row(std::string_view line, std::size_t columns, bool is_cut) {
  std::vector<std::string_view> cells = cells_of(line);
  if (is_cut ? cells.size() > columns : cells.size() != columns) return false;
  const std::string_view kind = cells[0], last = cells.back();
  const auto may_be = [&](std::string_view whole) {
    return kind == whole || (is_cut && cells.size() == 1 && whole.starts_with(kind));
  };
  if (!may_be("epoch") && !may_be("end")) return false;
  const auto is_of_number = [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '+' || c == '.';
  };
  if (is_cut && !std::ranges::all_of(last, is_of_number)) return false;
  cells.erase(cells.begin());
  if (is_cut && !cells.empty()) cells.pop_back();
  return std::ranges::all_of(cells, is_value);
}

// Whether all lines are the head and the rows of a summary.csv. A kill can cut the last one short.
bool is_table(const std::string& text) {
  if (!text.starts_with(kTableHead)) return false;
  const std::string head = text.substr(0, text.find('\n'));
  const std::vector<std::string_view> columns = cells_of(head);
  if (!std::ranges::all_of(columns, is_column)) return false;
  for (std::size_t begin = head.size() + 1, end = 0; begin < text.size(); begin = end + 1) {
    end = std::min(text.find('\n', begin), text.size());
    if (!is_row(std::string_view(text).substr(begin, end - begin), columns.size(), end == text.size()))
      return false;
  }
  return true;
}

bool begins_as_batch(const std::string& line) {
  static const std::regex begin(R"(\{"epoch":\d+,"images_per_second":)");  // read for each line of a long run
  return std::regex_search(line, begin, std::regex_constants::match_continuous);
}

// Whether all lines are batches of a run, as metrics.jsonl holds them. A kill can cut the last one short.
bool are_batches(std::istream& in) {
  constexpr std::string_view kBegin = R"({"epoch":)";
  for (std::string line; std::getline(in, line);)
    if (in.eof() ? !line.starts_with(kBegin) && !kBegin.starts_with(line)
                 : !begins_as_batch(line) || !line.ends_with('}'))
      return false;
  return true;
}

bool is_config(const std::string& text) {
  const std::size_t flags = config_text("").size();
  return text.size() >= flags && text == config_text(text.substr(flags));
}

bool begins_as(const std::string& head, const std::string& kind) {
  if (head.empty()) return kind == "metrics begun" || kind == "events" || kind == "collectives";
  if (kind == "page") return head.starts_with(kPageHead);
  if (kind == "metrics begun") return begins_as_batch(head);
  if (kind == "collectives") return begins_with(head, R"(\{"all_called":)");
  if (kind == "events") return begins_as_event_file(head);
  return (kind == "weights" || kind == "results") && begins_as_tensors(head, kind);
}

bool is_json(const std::string& kind) {
  static const std::set<std::string> others{"page",   "metrics begun", "collectives",
                                            "events", "weights",       "results"};
  return !others.contains(kind);
}

// The beginning of a JSON file whose other bytes have this checksum.
std::string json_head(const std::string& kind, const std::string& checksum) {
  return fmt::format("{{\n \"format\": \"tandem {}\",\n \"checksum\": \"{}\"", kind, checksum);
}

// Whether it has the checksum of what follows. Traces are large, so it is read in pieces.
bool is_unedited_json(std::ifstream& in, const std::string& head, const std::string& kind) {
  const std::size_t digits = engine::checksum_of("").size(),
                    body = json_head(kind, std::string(digits, '0')).size();
  if (head.size() < body) return false;
  const std::string said = head.substr(body - digits - 1, digits);
  if (!head.starts_with(json_head(kind, said))) return false;
  engine::Checksum rest;
  std::string piece = head.substr(body);
  while (!piece.empty()) {
    rest.update(std::as_bytes(std::span(piece)));
    piece.resize(1 << 20);
    in.read(piece.data(), std::ssize(piece));
    piece.resize(static_cast<std::size_t>(in.gcount()));
  }
  return rest.hex() == said;
}

}  // namespace

Found look_at(const std::string& file, const std::string& kind) {
  std::error_code none;
  if (!fs::exists(fs::symlink_status(file, none))) return Found::nothing;
  if (!fs::is_regular_file(file, none)) return Found::foreign;
  std::ifstream in(file, std::ios::binary);
  if (kind == "config" || kind == "table") {
    const std::string text(std::istreambuf_iterator<char>(in), {});
    return (kind == "config" ? is_config(text) : is_table(text)) ? Found::own : Found::foreign;
  }
  if (kind == "metrics") return are_batches(in) ? Found::own : Found::foreign;
  std::string head(256, '\0');
  in.read(head.data(), std::ssize(head));
  head.resize(static_cast<std::size_t>(in.gcount()));
  return (is_json(kind) ? is_unedited_json(in, head, kind) : begins_as(head, kind)) ? Found::own
                                                                                    : Found::foreign;
}

std::string config_text(const std::string& flags) {
  return fmt::format(
      "# tandem config: the flags of a run, for --config\n"
      "# checksum {}: once it is edited, it is yours, and no run replaces it\n{}",
      engine::checksum_of(flags), flags);
}

std::string with_format(const std::string& kind, const std::string& json) {
  const std::size_t first = json.find_first_not_of(" \n", 1);
  const bool is_empty = json.at(first) == '}';
  const std::string body = (is_empty ? "\n" : ",\n ") + json.substr(first);
  return json_head(kind, engine::checksum_of(body)) + body;
}

}  // namespace tandem::apps
