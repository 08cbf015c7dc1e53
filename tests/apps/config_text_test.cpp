// What a file for --config may say, and what is refused.
#include <gtest/gtest.h>

#include "config_text.h"
#include "expect_error.h"
#include "seed.h"

namespace tandem::apps {
namespace {

using test::expect_error;

std::vector<std::string> values(const std::string& text) {
  const auto lines = parse_config("x = " + text);
  return lines.size() == 1 && lines[0].name == "x" ? lines[0].values : std::vector<std::string>{"?"};
}

TEST(ConfigText, ValuesAreStringsListsAndWhatStandsThere) {
  using Words = std::vector<std::string>;
  EXPECT_EQ(Words{"0.1"}, values("0.1"));
  EXPECT_EQ(Words{"0.1"}, values("  0.1 \t # a comment\r\n"));
  EXPECT_EQ(Words{"adam w"}, values("adam w ; a comment"));
  EXPECT_EQ(Words{"runs/#1;=[2]"}, values(R"("runs/#1;=[2]" # a comment)"));
  EXPECT_EQ(Words{"a\\b\"c"}, values(R"('a\b"c')"));
  EXPECT_EQ(Words{"a\\b\"c\td"}, values(R"("a\\b\"c\td")"));
  EXPECT_EQ(Words{""}, values(R"("")"));
  EXPECT_EQ((Words{"0.1", "a, b", "c"}), values(R"([0.1, "a, b", c])"));
  EXPECT_EQ((Words{"1", "2"}), values("[\n  1, # one\n\n  2,\n]\n"));
  const auto lines = parse_config("# first\n\n; second\r\na=1\n\"b\" = true\nc = 'true'");
  ASSERT_EQ(3u, lines.size());
  EXPECT_EQ("a", lines[0].name);
  EXPECT_EQ(4, lines[0].line);
  EXPECT_EQ("b", lines[1].name);
  EXPECT_FALSE(lines[1].quoted);
  EXPECT_TRUE(lines[2].quoted);
  EXPECT_TRUE(parse_config("").empty());
}

TEST(ConfigText, AnyStringIsWhatWasQuoted) {
  auto rng = test::generator("strings");
  for (int i = 0; i < 1000; ++i) {
    std::string value;
    for (int n = test::draw_int(rng, 0, 12); n > 0; --n)
      value += "\"'\\#;,=[]\n\t a\xc3\xa9"[test::draw_int(rng, 0, 14)];
    EXPECT_EQ(std::vector<std::string>{value}, values(config_string(value)));
  }
}

TEST(ConfigText, AnythingElseIsRefusedByItsLine) {
  const auto refused = [](const std::string& text, const std::string& what) {
    expect_error([&] { parse_config("a = 1\n" + text); }, {"line 2", what});
  };
  refused("lr", "'lr' has no value");
  refused("[part]\n", "there are no sections");
  refused("[", "there are no sections");
  refused("a = 2", "'a' is there twice");
  refused("b = []", "an empty list");
  refused("b = [1 2", "has no end");
  refused("b = ['1' '2']", "lacks ','");
  refused("b = [1", "has no end");
  refused("b = \"1\n\"", "a string has no end");
  refused("b = '1' 2", "followed by more");
  refused("b = \"\\x\"", "escape");
  refused("b = \"\"\"1\"\"\"", "followed by more");
}

TEST(ConfigText, NoBytesAreTooStrange) {
  auto rng = test::generator("bytes");
  for (int i = 0; i < 20'000; ++i) {
    std::string text;
    for (int n = test::draw_int(rng, 0, 30); n > 0; --n)
      text += test::draw_bool(rng, 0.2) ? static_cast<char>(test::draw_int(rng, 0, 255))
                                        : "ab=[],\"'\\\n #"[test::draw_int(rng, 0, 11)];
    try {
      for (const ConfigLine& l : parse_config(text)) EXPECT_FALSE(l.values.empty()) << text;
    } catch (const Error&) {
    }
  }
}

}  // namespace
}  // namespace tandem::apps
