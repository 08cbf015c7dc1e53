#include "config_text.h"

#include <set>
#include <string_view>

#include <fmt/format.h>

#include <tandem/core/base/error.h>

namespace tandem::apps {
namespace {

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  std::vector<ConfigLine> lines() {
    std::vector<ConfigLine> all;
    std::set<std::string> names;
    for (skip("\n"); !ended(); skip("\n")) {
      ConfigLine l = line();
      if (!names.insert(l.name).second) fail(fmt::format("'{}' is there twice", l.name));
      skip("");
      if (!ended() && peek() != '\n') fail(fmt::format("'{}' is followed by more than a comment", l.name));
      all.push_back(std::move(l));
    }
    return all;
  }

 private:
  bool ended() const { return at_ == text_.size(); }
  char peek() const { return text_[at_]; }
  char next() {
    line_ += peek() == '\n';
    return text_[at_++];
  }
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(fmt::format("line {}: {}", line_, what));
  }

  // Blanks and comments, and characters of `also`.
  void skip(std::string_view also) {
    while (!ended()) {
      if (peek() == '#' || peek() == ';')
        while (!ended() && peek() != '\n') next();
      else if (peek() == ' ' || peek() == '\t' || peek() == '\r' || also.find(peek()) != also.npos)
        next();
      else
        return;
    }
  }

  ConfigLine line() {
    ConfigLine l;
    l.line = line_;
    if (peek() == '[') {
      next();
      fail(fmt::format("'{}': there are no sections; write flag = value", bare("]\n")));
    }
    l.name = word("=\n");
    skip("");
    if (ended() || peek() != '=') fail(fmt::format("'{}' has no value; write flag = value", l.name));
    next();
    skip("");
    if (!ended() && peek() == '[') {
      list(l.values);
    } else {
      l.quoted = at_quote();
      l.values = {word("\n#;")};
    }
    return l;
  }

  void list(std::vector<std::string>& values) {
    const int begin = line_;
    next();
    for (skip("\n"); !ended() && peek() != ']'; skip("\n")) {
      values.push_back(word(",]\n#"));
      skip("\n");
      if (!ended() && peek() == ',')
        next();
      else if (!ended() && peek() != ']')
        fail(fmt::format("the list that begins in line {} lacks ',' or ']'", begin));
    }
    if (ended()) fail(fmt::format("the list that begins in line {} has no end", begin));
    next();
    if (values.empty()) fail("an empty list; leave the line out, or give it a value");
  }

  bool at_quote() const { return !ended() && (peek() == '"' || peek() == '\''); }
  std::string word(std::string_view end) { return at_quote() ? string() : bare(end); }

  // Up to one of the characters `end`, without blanks around it.
  std::string bare(std::string_view end) {
    const std::size_t begin = at_;
    while (!ended() && end.find(peek()) == end.npos) next();
    const std::string_view all = text_.substr(begin, at_ - begin);
    const std::size_t last = all.find_last_not_of(" \t\r");
    return std::string(all.substr(0, last == all.npos ? 0 : last + 1));
  }

  std::string string() {
    const char quote = next();
    std::string value;
    while (!ended() && peek() != quote && peek() != '\n') {
      const char c = next();
      value += quote == '"' && c == '\\' ? escaped() : c;
    }
    if (ended() || peek() != quote) fail("a string has no end");
    next();
    return value;
  }

  char escaped() {
    constexpr std::string_view kNames = "\"\\tn", kMeant = "\"\\\t\n";
    const std::size_t which = ended() ? kNames.npos : kNames.find(peek());
    if (which == kNames.npos) fail(R"(a string has an escape other than \" \\ \t \n; '…' has none)");
    next();
    return kMeant[which];
  }

  std::string_view text_;
  std::size_t at_ = 0;
  int line_ = 1;
};

}  // namespace

std::vector<ConfigLine> parse_config(const std::string& text) { return Reader(text).lines(); }

std::string config_string(const std::string& value) {
  std::string text = "\"";
  for (const char c : value) {
    if (c == '"' || c == '\\') text += '\\';
    text += c == '\n' ? "\\n" : c == '\t' ? "\\t" : std::string(1, c);
  }
  return text + "\"";
}

}  // namespace tandem::apps
