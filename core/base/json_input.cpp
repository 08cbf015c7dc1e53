#include <tandem/core/base/json_input.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <list>
#include <set>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <tandem/core/base/error.h>

namespace tandem::engine {
namespace {

constexpr const char* kTop = "the top level";
constexpr std::size_t kDeepest = 100;                     // writing and freeing a value recurse
constexpr std::size_t kShown = 60, kShownOfParser = 300;  // characters in an error

// Returns the part of a user's text that an error shows.
std::string beginning_of(std::string_view text, std::size_t most) {
  return std::string(text.substr(0, most)) + (text.size() <= most ? "" : "...");
}

// A JSON object. nlohmann::ordered_json keeps the order too, but it searches all keys for each key that it
// adds, and copies its values when it grows.
template <class Key, class Value, class Less, class Allocator>
struct Entries : std::list<std::pair<const Key, Value>, Allocator> {
  using key_type = Key;
  using mapped_type = Value;
  using key_compare = Less;
};
using Json = nlohmann::basic_json<Entries>;

const Json& as_json(const std::shared_ptr<const void>& value) {
  return *static_cast<const Json*>(value.get());
}

// Frees a value from the inside out. nlohmann's destructor allocates memory when a value has parts, and ends
// the process if there is no memory.
void clear(Json& value) {
  if (!value.is_structured()) return;
  for (Json& part : value) clear(part);
  value.clear();
}

// Builds a value from the parser's events. nlohmann's own builder accepts a key twice, and any depth.
class Builder final : public nlohmann::json_sax<Json> {
 public:
  Builder(const std::string& what, const std::string& text, Json& root)
      : what_(what), text_(text), root_(root) {}
  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(std::int64_t value) override { return add(value); }
  bool number_unsigned(std::uint64_t value) override { return add(value); }
  bool number_float(double value, const std::string&) override { return add(value); }
  bool string(std::string& value) override { return add(std::move(value)); }
  bool binary(Json::binary_t&) override { return false; }  // JSON has none
  bool start_array(std::size_t) override { return add(Json::value_t::array); }
  bool start_object(std::size_t) override { return add(Json::value_t::object); }
  bool end_array() override { return close(); }
  bool end_object() override { return close(); }
  bool key(std::string& name) override {
    if (!keys_.back().insert(name).second)
      fail(fmt::format("the key \"{}\" is given twice in one object", beginning_of(name, kShown)));
    key_ = std::move(name);
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& e) override {
    const std::string_view read = std::string_view(text_).substr(0, position > 0 ? position - 1 : 0);
    std::string_view why =
        e.what();  // "[json.exception.parse_error.101] parse error at line 1, column 2: ..."
    why.remove_prefix(why.find("] ") + 2);
    if (why.starts_with("parse error at ")) why.remove_prefix(why.find(": ") + 2);
    fail(fmt::format("not valid JSON at line {}, column {}: {}", 1 + std::ranges::count(read, '\n'),
                     read.size() - read.rfind('\n'), beginning_of(why, kShownOfParser)));
  }

 private:
  [[noreturn]] void fail(const std::string& why) const { throw Error(fmt::format("{}: {}", what_, why)); }
  // Adds a value to the array or object that was opened last. The others do not grow meanwhile, so pointers
  // stay valid.
  bool add(Json value) {
    const bool opens = value.is_structured();
    if (opens && open_.size() == kDeepest)
      fail(fmt::format("more than {} arrays and objects are nested", kDeepest));
    Json* added = &root_;
    if (open_.empty())
      root_ = std::move(value);
    else if (open_.back()->is_array())
      added = &open_.back()->emplace_back(std::move(value));
    else
      added = &open_.back()->get_ref<Json::object_t&>().emplace_back(key_, std::move(value)).second;
    if (opens) open_.push_back(added), keys_.emplace_back();
    return true;
  }
  bool close() { return open_.pop_back(), keys_.pop_back(), true; }

  const std::string &what_, &text_;
  Json& root_;
  std::vector<Json*> open_;                  // the innermost last
  std::vector<std::set<std::string>> keys_;  // of each open one
  std::string key_;
};

}  // namespace

// Without O_NONBLOCK, open would wait for a pipe's first writer. The reads wait, because a writer may be
// slow.
std::string read_text(const std::string& what, const std::string& file, std::size_t most) {
  const auto fail = [&](const std::string& why) {
    throw Error(fmt::format("{} '{}' cannot be read: {}", what, file, why));
  };
  const std::unique_ptr<int, void (*)(int*)> in(
      new int(open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)), [](int* d) { close(*d), delete d; });
  if (*in < 0) fail(std::strerror(errno));
  std::string text;
  bool waits = false;
  for (char part[1 << 16]; text.size() <= most;) {
    const auto got = read(*in, part, std::min(sizeof part, most + 1 - text.size()));
    if (got > 0) {
      text.append(part, static_cast<std::size_t>(got));
    } else if (got == 0) {
      if (struct stat info{}; text.empty() && !waits && fstat(*in, &info) == 0 && S_ISFIFO(info.st_mode))
        fail("it is an empty pipe, and no process has it open for writing; give a file");
      return text;
    } else if (errno == EAGAIN && !waits) {
      waits = fcntl(*in, F_SETFL, 0) == 0;
    } else if (errno != EINTR) {  // a directory can be opened, but not read
      fail(std::strerror(errno));
    }
  }
  throw Error(fmt::format("{} '{}' has more than {} bytes, the most that is read", what, file, most));
}

JsonInput::JsonInput(std::string what, std::string where, std::shared_ptr<const void> value)
    : what_(std::move(what)), where_(std::move(where)), value_(std::move(value)) {}

JsonInput JsonInput::parse(const std::string& what, const std::string& text) {
  const std::shared_ptr<Json> value(new Json, [](Json* root) {
    clear(*root);
    delete root;
  });
  Builder builder(what, text, *value);
  Json::sax_parse(text, &builder);
  return {what, kTop, value};
}

JsonInput JsonInput::part(const std::string& place, const void* value) const {
  const std::string where = where_ == kTop ? place : fmt::format("{}: {}", where_, place);
  return {what_, where, value ? std::shared_ptr<const void>(value_, value) : nullptr};
}

JsonInput JsonInput::operator[](const std::string& key) const {
  if (value_ && !is_object()) refuse("an object is expected");
  const auto quoted = fmt::format("\"{}\"", key);
  if (!value_) return part(quoted, nullptr);
  const auto& entries = as_json(value_).get_ref<const Json::object_t&>();
  const auto found = std::ranges::find(entries, key, &Json::object_t::value_type::first);
  return part(quoted, found == entries.end() ? nullptr : &found->second);
}

bool JsonInput::is_null() const { return value_ && as_json(value_).is_null(); }
bool JsonInput::is_object() const { return value_ && as_json(value_).is_object(); }
bool JsonInput::is_array() const { return value_ && as_json(value_).is_array(); }

JsonInput JsonInput::renamed(const std::string& key, const std::string& old_key) const {
  const JsonInput now = (*this)[key], old = (*this)[old_key];
  if (now.present() && old.present())
    refuse(fmt::format("'{}' or its older name '{}', not both", key, old_key));
  return old.present() ? old : now.required();
}

const JsonInput& JsonInput::required() const {
  if (!value_) throw Error(fmt::format("{}: {} is missing", what_, where_));
  return *this;
}

JsonInput JsonInput::called(const std::string& name) const { return {what_, name, value_}; }

void JsonInput::require_keys(std::initializer_list<const char*> known) const {
  for (const auto& [key, value] : entries())
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      const JsonInput format = (*this)["format"];
      const bool says = format.present() && as_json(format.value_).is_string();
      throw Error(
          fmt::format("{}: {}: unknown key '{}'; there are: {}{}", what_, where_, beginning_of(key, kShown),
                      fmt::join(known, ", "),
                      says ? fmt::format(". This is a file '{}'", beginning_of(format.text(), kShown)) : ""));
    }
}

std::int64_t JsonInput::whole(std::int64_t otherwise, std::int64_t least, std::int64_t most) const {
  if (!value_) return otherwise;
  const Json& v = as_json(value_);
  const bool fits =
      v.is_number_unsigned() ? std::in_range<std::int64_t>(v.get<std::uint64_t>()) : v.is_number_integer();
  if (!fits || v.get<std::int64_t>() < least || v.get<std::int64_t>() > most)
    refuse(least == most ? fmt::format("{} is expected", least)
                         : fmt::format("an integer from {} to {} is expected", least, most));
  return v.get<std::int64_t>();
}

double JsonInput::number(double otherwise, double least, double most) const {
  if (!value_) return otherwise;
  const Json& v = as_json(value_);
  if (!v.is_number() || !(v.get<double>() >= least && v.get<double>() <= most))
    refuse(least == most ? fmt::format("{:g} is expected", least)
                         : fmt::format("a number from {:g} to {:g} is expected", least, most));
  return v.get<double>();
}

bool JsonInput::flag(bool otherwise) const {
  if (!value_) return otherwise;
  if (!as_json(value_).is_boolean()) refuse("true or false is expected");
  return as_json(value_).get<bool>();
}

void JsonInput::require_flag(bool accepted) const {
  if (flag(accepted) != accepted) refuse(accepted ? "it must be true" : "it must be false");
}

std::string JsonInput::text(const std::string& otherwise) const {
  if (!value_) return otherwise;
  if (!as_json(value_).is_string()) refuse("a text is expected");
  return as_json(value_).get<std::string>();
}

std::size_t JsonInput::one_of(const std::vector<std::string>& accepted) const {
  const auto found = std::ranges::find(accepted, required().text());
  if (found == accepted.end())
    refuse(fmt::format("one of \"{}\" is expected", fmt::join(accepted, "\", \"")));
  return static_cast<std::size_t>(found - accepted.begin());
}

std::vector<JsonInput> JsonInput::items() const {
  std::vector<JsonInput> result;
  if (!value_) return result;
  if (!as_json(value_).is_array()) refuse("an array is expected");
  for (const Json& item : as_json(value_)) result.push_back(part(fmt::format("[{}]", result.size()), &item));
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
  const auto& object = as_json(value_).get_ref<const Json::object_t&>();
  const bool says_writer =
      where_ == kTop && std::ranges::any_of(object, [](const auto& entry) {
        return entry.first == "format" && entry.second.is_string() &&
               entry.second.template get_ref<const std::string&>().starts_with("tandem ");
      });
  for (const auto& [key, value] : object)
    if (!says_writer || (key != "format" && key != "checksum"))
      result.emplace_back(key, part(fmt::format("\"{}\"", beginning_of(key, kShown)), &value));
  return result;
}

void JsonInput::refuse(const std::string& accepted) const {
  throw Error(
      fmt::format("{}: {} is {}; {}", what_, where_, beginning_of(as_json(value_).dump(), kShown), accepted));
}

}  // namespace tandem::engine
