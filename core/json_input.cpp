#include <tandem/core/json_input.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <tandem/core/error.h>

namespace tandem {
namespace {

using json = nlohmann::ordered_json;

const json& as_json(const std::shared_ptr<const void>& value) {
  return *static_cast<const json*>(value.get());
}

}  // namespace

std::string read_text(const std::string& what, const std::string& file) {
  errno = 0;
  std::ifstream in(file);
  in.peek();  // a directory can be opened, but not read
  if (!in.is_open() || in.bad())
    throw Error(fmt::format("{} '{}' cannot be read: {}", what, file, std::strerror(errno)));
  return {std::istreambuf_iterator<char>(in), {}};
}

JsonInput::JsonInput(std::string what, std::string where, std::shared_ptr<const void> value)
    : what_(std::move(what)), where_(std::move(where)), value_(std::move(value)) {}

JsonInput JsonInput::parse(const std::string& what, const std::string& text) {
  std::vector<std::set<std::string>> keys;  // of the objects that are open
  const auto once = [&](int, json::parse_event_t event, json& parsed) {
    if (event == json::parse_event_t::object_start) keys.emplace_back();
    if (event == json::parse_event_t::object_end) keys.pop_back();
    if (event == json::parse_event_t::key && !keys.back().insert(parsed.get<std::string>()).second)
      throw Error(fmt::format("{}: the key {} is given twice in one object", what, parsed.dump()));
    return true;
  };
  try {
    return {what, "the top level", std::make_shared<const json>(json::parse(text, once))};
  } catch (const json::exception& e) {
    throw Error(fmt::format("{}: {}", what, e.what()));
  }
}

JsonInput JsonInput::part(const std::string& place, const void* value) const {
  const std::string where = where_ == "the top level" ? place : fmt::format("{}: {}", where_, place);
  return {what_, where, value ? std::shared_ptr<const void>(value_, value) : nullptr};
}

JsonInput JsonInput::operator[](const std::string& key) const {
  if (value_ && !is_object()) refuse("an object is expected");
  const auto quoted = fmt::format("\"{}\"", key);
  if (!value_) return part(quoted, nullptr);
  const auto found = as_json(value_).find(key);
  return part(quoted, found == as_json(value_).end() ? nullptr : &*found);
}

bool JsonInput::is_object() const { return value_ && as_json(value_).is_object(); }

const JsonInput& JsonInput::required() const {
  if (!value_) throw Error(fmt::format("{}: {} is missing", what_, where_));
  return *this;
}

JsonInput JsonInput::called(const std::string& name) const { return {what_, name, value_}; }

void JsonInput::require_keys(std::initializer_list<const char*> known) const {
  for (const auto& [key, value] : entries())
    if (std::find(known.begin(), known.end(), key) == known.end())
      throw Error(
          fmt::format("{}: {}: unknown key '{}'; there are: {}", what_, where_, key, fmt::join(known, ", ")));
}

std::int64_t JsonInput::whole(std::int64_t otherwise, std::int64_t least, std::int64_t most) const {
  if (!value_) return otherwise;
  const json& j = as_json(value_);
  const bool fits = j.is_number_unsigned() ? j.get<std::uint64_t>() <= static_cast<std::uint64_t>(most)
                                           : j.is_number_integer();
  if (!fits || j.get<std::int64_t>() < least || j.get<std::int64_t>() > most)
    refuse(fmt::format("an integer from {} to {} is expected", least, most));
  return j.get<std::int64_t>();
}

double JsonInput::number(double otherwise, double least, double most) const {
  if (!value_) return otherwise;
  const json& j = as_json(value_);
  if (!j.is_number() || !(j.get<double>() >= least && j.get<double>() <= most))
    refuse(fmt::format("a number from {:g} to {:g} is expected", least, most));
  return j.get<double>();
}

bool JsonInput::flag(bool otherwise) const {
  if (!value_) return otherwise;
  if (!as_json(value_).is_boolean()) refuse("true or false is expected");
  return as_json(value_).get<bool>();
}

std::string JsonInput::text(const std::string& otherwise) const {
  if (!value_) return otherwise;
  if (!as_json(value_).is_string()) refuse("a text is expected");
  return as_json(value_).get<std::string>();
}

std::vector<JsonInput> JsonInput::items() const {
  std::vector<JsonInput> result;
  if (!value_) return result;
  if (!as_json(value_).is_array()) refuse("an array is expected");
  for (const json& item : as_json(value_)) result.push_back(part(fmt::format("[{}]", result.size()), &item));
  return result;
}

std::vector<std::string> JsonInput::texts() const {
  std::vector<std::string> result;
  for (const JsonInput& item : items()) result.push_back(item.text());
  return result;
}

std::vector<std::pair<std::string, JsonInput>> JsonInput::entries() const {
  std::vector<std::pair<std::string, JsonInput>> result;
  if (!value_) return result;
  if (!is_object()) refuse("an object is expected");
  for (const auto& [key, value] : as_json(value_).items())
    result.emplace_back(key, part(fmt::format("\"{}\"", key), &value));
  return result;
}

void JsonInput::refuse(const std::string& accepted) const {
  constexpr std::size_t kShown = 60;
  std::string given = as_json(value_).dump();
  if (given.size() > kShown) given = given.substr(0, kShown) + "...";
  throw Error(fmt::format("{}: {} is {}; {}", what_, where_, given, accepted));
}

}  // namespace tandem
