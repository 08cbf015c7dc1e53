#include <tandem/core/base/json_input.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <set>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <tandem/core/base/error.h>

namespace tandem::engine {
namespace {

constexpr std::size_t kMostText =
    100'000'000;                       // that a file may have: Programs of 100,000 instructions have less
constexpr std::size_t kDeepest = 100;  // values are written out, and freed, level by level
constexpr std::size_t kShown = 60, kShownOfParser = 300;

// What errors show of a text that somebody else wrote.
std::string beginning_of(std::string_view text, std::size_t most) {
  return std::string(text.substr(0, most)) + (text.size() <= most ? "" : "...");
}

enum class Kind { null, flag, integer, number, text, array, object };

// A value of JSON. Not nlohmann's, whose destructor allocates: where there is no memory it ends the process.
struct Value {
  Kind kind = Kind::null;
  bool flag = false;
  std::int64_t integer = 0;
  double number = 0;                                   // of an integer too
  std::string text;                                    // of a number: as it was written
  std::vector<std::pair<std::string, Value>> parts{};  // of an array without names
};

const Value& as_value(const std::shared_ptr<const void>& value) {
  return *static_cast<const Value*>(value.get());
}

// Takes the parser's events one by one: it would forget keys that come twice, and nest without end.
class Builder final : public nlohmann::json_sax<nlohmann::json> {
 public:
  Builder(const std::string& what, Value& root) : what_(what), root_(root) {}
  bool null() override { return add({}); }
  bool boolean(bool flag) override { return add({.kind = Kind::flag, .flag = flag, .text = {}}); }
  bool number_integer(std::int64_t n) override { return add(integer(n, fmt::format("{}", n))); }
  bool number_unsigned(std::uint64_t n) override {
    constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max();
    return n <= kMost ? number_integer(static_cast<std::int64_t>(n))
                      : number_float(static_cast<double>(n), fmt::format("{}", n));
  }
  bool number_float(double n, const std::string& text) override {
    return add({.kind = Kind::number, .number = n, .text = text});
  }
  bool string(std::string& text) override { return add({.kind = Kind::text, .text = text}); }
  bool binary(nlohmann::json::binary_t&) override { return false; }
  bool start_array(std::size_t) override { return open(Kind::array); }
  bool start_object(std::size_t) override {
    open(Kind::object);
    keys_.emplace_back();
    return true;
  }
  bool key(std::string& name) override {
    if (!keys_.back().insert(name).second)
      throw Error(
          fmt::format("{}: the key \"{}\" is given twice in one object", what_, beginning_of(name, kShown)));
    key_ = name;
    return true;
  }
  bool end_array() override { return close(); }
  bool end_object() override {
    keys_.pop_back();
    return close();
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& e) override {
    throw Error(fmt::format("{}: {}", what_, beginning_of(e.what(), kShownOfParser)));
  }

 private:
  static Value integer(std::int64_t n, std::string text) {
    return {.kind = Kind::integer, .integer = n, .number = static_cast<double>(n), .text = std::move(text)};
  }
  bool add(Value value) {
    if (open_.empty())
      root_ = std::move(value);
    else
      open_.back()->parts.emplace_back(open_.back()->kind == Kind::object ? key_ : "", std::move(value));
    return true;
  }
  bool open(Kind kind) {
    if (open_.size() == kDeepest)
      throw Error(fmt::format("{}: more than {} arrays and objects are nested", what_, kDeepest));
    add({.kind = kind, .text = {}});
    open_.push_back(open_.empty() ? &root_ : &open_.back()->parts.back().second);
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }
  const std::string& what_;
  Value& root_;
  std::vector<Value*> open_;                 // the innermost last: only that one grows
  std::vector<std::set<std::string>> keys_;  // of the objects that are open
  std::string key_;
};

// JSON, up to a little more than what errors show.
void write(const Value& v, std::string& out) {
  const auto quoted = [&](const std::string& text) { out += "\"" + beginning_of(text, kShown) + "\""; };
  switch (v.kind) {
    case Kind::null: out += "null"; return;
    case Kind::flag: out += v.flag ? "true" : "false"; return;
    case Kind::integer:
    case Kind::number: out += v.text; return;
    case Kind::text: quoted(v.text); return;
    case Kind::array:
    case Kind::object: break;
  }
  const bool object = v.kind == Kind::object;
  out += object ? '{' : '[';
  for (const auto& [key, part] : v.parts) {
    if (out.size() > kShown) return;
    if (&part != &v.parts.front().second) out += ',';
    if (object) {
      quoted(key);
      out += ':';
    }
    write(part, out);
  }
  out += object ? '}' : ']';
}

}  // namespace

std::string read_text(const std::string& what, const std::string& file) {
  errno = 0;
  std::ifstream in(file);
  in.peek();  // a directory can be opened, but not read
  if (!in.is_open() || in.bad())
    throw Error(fmt::format("{} '{}' cannot be read: {}", what, file, std::strerror(errno)));
  std::string text;
  for (std::size_t piece = 1 << 16; in && text.size() <= kMostText; piece = text.size()) {
    const std::size_t before = text.size();
    text.resize(before + piece);
    in.read(text.data() + before, static_cast<std::streamsize>(piece));
    text.resize(before + static_cast<std::size_t>(in.gcount()));
  }
  if (in.bad()) throw Error(fmt::format("{} '{}' cannot be read: {}", what, file, std::strerror(errno)));
  if (text.size() > kMostText)
    throw Error(fmt::format("{} '{}' has more than {} bytes, which are the most that is read", what, file,
                            kMostText));
  return text;
}

JsonInput::JsonInput(std::string what, std::string where, std::shared_ptr<const void> value)
    : what_(std::move(what)), where_(std::move(where)), value_(std::move(value)) {}

JsonInput JsonInput::parse(const std::string& what, const std::string& text) {
  auto value = std::make_shared<Value>();
  Builder builder(what, *value);
  nlohmann::json::sax_parse(text, &builder);
  return {what, "the top level", std::move(value)};
}

JsonInput JsonInput::part(const std::string& place, const void* value) const {
  const std::string where = where_ == "the top level" ? place : fmt::format("{}: {}", where_, place);
  return {what_, where, value ? std::shared_ptr<const void>(value_, value) : nullptr};
}

JsonInput JsonInput::operator[](const std::string& key) const {
  if (value_ && !is_object()) refuse("an object is expected");
  const auto quoted = fmt::format("\"{}\"", key);
  if (!value_) return part(quoted, nullptr);
  const auto& parts = as_value(value_).parts;
  const auto found = std::ranges::find(parts, key, [](const auto& entry) { return entry.first; });
  return part(quoted, found == parts.end() ? nullptr : &found->second);
}

bool JsonInput::is_object() const { return value_ && as_value(value_).kind == Kind::object; }

const JsonInput& JsonInput::required() const {
  if (!value_) throw Error(fmt::format("{}: {} is missing", what_, where_));
  return *this;
}

JsonInput JsonInput::called(const std::string& name) const { return {what_, name, value_}; }

void JsonInput::require_keys(std::initializer_list<const char*> known) const {
  for (const auto& [key, value] : entries())
    if (std::find(known.begin(), known.end(), key) == known.end())
      throw Error(fmt::format("{}: {}: unknown key '{}'; there are: {}", what_, where_,
                              beginning_of(key, kShown), fmt::join(known, ", ")));
}

std::int64_t JsonInput::whole(std::int64_t otherwise, std::int64_t least, std::int64_t most) const {
  if (!value_) return otherwise;
  const Value& v = as_value(value_);
  if (v.kind != Kind::integer || v.integer < least || v.integer > most)
    refuse(fmt::format("an integer from {} to {} is expected", least, most));
  return v.integer;
}

double JsonInput::number(double otherwise, double least, double most) const {
  if (!value_) return otherwise;
  const Value& v = as_value(value_);
  const bool is_number = v.kind == Kind::integer || v.kind == Kind::number;
  if (!is_number || !(v.number >= least && v.number <= most))
    refuse(fmt::format("a number from {:g} to {:g} is expected", least, most));
  return v.number;
}

bool JsonInput::flag(bool otherwise) const {
  if (!value_) return otherwise;
  if (as_value(value_).kind != Kind::flag) refuse("true or false is expected");
  return as_value(value_).flag;
}

std::string JsonInput::text(const std::string& otherwise) const {
  if (!value_) return otherwise;
  if (as_value(value_).kind != Kind::text) refuse("a text is expected");
  return as_value(value_).text;
}

std::vector<JsonInput> JsonInput::items() const {
  std::vector<JsonInput> result;
  if (!value_) return result;
  if (as_value(value_).kind != Kind::array) refuse("an array is expected");
  for (const auto& [none, item] : as_value(value_).parts)
    result.push_back(part(fmt::format("[{}]", result.size()), &item));
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
  for (const auto& [key, value] : as_value(value_).parts)
    result.emplace_back(key, part(fmt::format("\"{}\"", beginning_of(key, kShown)), &value));
  return result;
}

void JsonInput::refuse(const std::string& accepted) const {
  std::string given;
  write(as_value(value_), given);
  throw Error(fmt::format("{}: {} is {}; {}", what_, where_, beginning_of(given, kShown), accepted));
}

}  // namespace tandem::engine
