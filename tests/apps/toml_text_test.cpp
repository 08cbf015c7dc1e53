// What a file for --config may contain, what is refused, and what train_cifar writes.
#include <limits>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "expect_error.h"
#include "seed.h"
#include "toml_text.h"

namespace tandem::apps {
namespace {

using testing::expect_error;
using Words = std::vector<std::string>;
using nlohmann::ordered_json;

Words values(const std::string& text) {
  const auto entries = read_toml("x = " + text);
  return entries.size() == 1 && entries[0].key == "x" ? entries[0].values : Words{"?"};
}

TEST(TomlText, ValuesAreNumbersTruthsStringsAndLists) {
  EXPECT_EQ(Words{"0.1"}, values("0.1"));
  EXPECT_EQ(Words{"0.001"}, values("  1e-3 \t # a comment\r\n"));
  EXPECT_EQ(Words{"10000"}, values("10_000"));
  EXPECT_EQ(Words{"inf"}, values("inf")) << "no flag accepts it";
  EXPECT_EQ(Words{"true"}, values("true"));
  EXPECT_EQ(Words{"runs/#1;=[2]"}, values(R"("runs/#1;=[2]" # a comment)"));
  EXPECT_EQ(Words{"a\\b\"c"}, values(R"('a\b"c')"));
  EXPECT_EQ(Words{"a\\b\"c\td\xc3\xa9"}, values(R"("a\\b\"c\td\u00e9")"));
  EXPECT_EQ(Words{"1"}, values(R"("""1""")"));
  for (const std::string c :
       {"\xc3\xa9", "\xe3\x80\x82", "\xf0\x9f\x98\x80", "\xe0\xa0\x80", "\xef\xbf\xbd", "\xdf\xbf"}) {
    EXPECT_EQ(Words{c + "#"}, values("'" + c + "#' # " + c));
    EXPECT_EQ(Words{c}, values("\"\"\"\\\n" + c + "\"\"\""));
  }
  EXPECT_EQ(Words{""}, values(R"("")"));
  EXPECT_EQ((Words{"0.1", "a, b", "3"}), values(R"([0.1, "a, b", 3])"));
  EXPECT_EQ((Words{"1", "2"}), values("[\n  1, # one\n\n  2,\n]\n"));
  const auto entries = read_toml("# first\n\nz=1\r\n\"b\" = true\nc = 'true'");
  ASSERT_EQ(3u, entries.size());
  EXPECT_EQ("z", entries[0].key) << "entries keep the order of the file";
  EXPECT_EQ(3, entries[0].line);
  EXPECT_EQ("b", entries[1].key);
  EXPECT_FALSE(entries[1].quoted);
  EXPECT_TRUE(entries[2].quoted);
  EXPECT_TRUE(read_toml("").empty());
  EXPECT_TRUE(read_toml("\xef\xbb\xbf# a byte order mark").empty());
}

// As older versions of train_cifar wrote them.
TEST(TomlText, NumbersThatTomlDoesNotHaveAreRead) {
  const auto entries =
      read_toml("momentum = .5\nlr = \"0.1,.05\"\nmixup = 1.\nmin-lr = 00.5\nseed = 18446744073709551615\n");
  ASSERT_EQ(5u, entries.size());
  EXPECT_EQ(Words{".5"}, entries[0].values);
  EXPECT_EQ(Words{"0.1,.05"}, entries[1].values);
  EXPECT_EQ(Words{"1."}, entries[2].values);
  EXPECT_EQ(Words{"00.5"}, entries[3].values);
  EXPECT_EQ(Words{"18446744073709551615"}, entries[4].values);
}

// The rescue of such numbers works by lines, which a text of several lines would hide.
TEST(TomlText, NumbersInsideTextsOfSeveralLinesStay) {
  expect_error([] { read_toml("output = \"\"\"\nx = 5\n\"\"\"\nlr = .5\n"); }, {"line 4"});
  EXPECT_EQ("x = 5\n", read_toml("output = \"\"\"\nx = 5\n\"\"\"\nlr = 0.5\n").at(0).values.at(0));
}

TEST(TomlText, CharactersThatTheReaderUsesItselfAreRefused) {
  expect_error([] { read_toml("output = '\xf4\x80\x82\x80'"); }, {"U+100000"});
  expect_error([] { read_toml("seed = 1\noutput = \"x\\u0000y\""); }, {"line 2: 'output'", "U+0000"});
}

TEST(TomlText, WhatIsWrittenIsRead) {
  auto rng = testing::generator("strings");
  for (int i = 0; i < 1000; ++i) {
    std::string value;
    for (int n = testing::draw_int(rng, 0, 12); n > 0; --n)
      value +=
          Words{"\"", "'",  "\\",   "#",    ",", "=", "[",        "]",           "\n",
                "\r", "\t", "\x01", "\x7f", " ", "a", "\xc3\xa9", "\xe2\x80\xa8"}[static_cast<std::size_t>(
              testing::draw_int(rng, 0, 16))];
    const double number = testing::draw_int(rng, -1000, 1000) * 1e-7;
    const auto entries =
        read_toml(to_toml(ordered_json{{"z", value}, {"list", {value, value}}, {"number", number}}));
    ASSERT_EQ(3u, entries.size());
    EXPECT_EQ(Words{value}, entries[0].values);
    EXPECT_EQ((Words{value, value}), entries[1].values);
    EXPECT_EQ(number, std::stod(entries[2].values[0]));
  }
  const std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
  const std::string text = to_toml(ordered_json{{"seed", {std::uint64_t{1}, most}},
                                                {"steps", 20},
                                                {"lr", {0.1, 1e-5}},
                                                {"drop-last", false},
                                                {"arch", "mlp"}});
  EXPECT_EQ(
      text,
      "seed = [1, \"18446744073709551615\"]\nsteps = 20\nlr = [0.1, 1e-05]\ndrop-last = false\narch = \"mlp\"\n");
}

TEST(TomlText, AnythingElseIsRefusedByItsLine) {
  const auto refused = [](const std::string& text, std::vector<std::string> words) {
    SCOPED_TRACE(text);
    words.insert(words.begin(), "line 2");
    expect_error([&] { read_toml("a = 1\n" + text); }, words);
  };
  const std::string accepted = "write flag = value: a number, true, false, a \"string\" or a [list] of these";
  refused("lr", {"column 3", accepted});
  refused("arch = mlp", {"column", accepted});
  refused("; a comment", {"column", accepted});
  refused("a = 2", {"redefine existing integer 'a'", accepted});
  refused("[part]\nb = 1", {"'part': sections, dates", accepted});
  refused("[[part]]\nb = 1", {"'part': sections, dates"});
  refused("part.b = 1", {"'part': sections, dates"});
  refused("b = {c = 1}", {"'b': sections, dates"});
  refused("[", {"column", accepted});
  refused("b = []", {"'b' is an empty list; leave the line out"});
  refused("b = [[1]]", {"'b': sections, dates, and lists in lists are not accepted", accepted});
  refused("b = [{c = 1}, 2]", {"'b': sections, dates"});
  refused("b = 2024-01-01", {"'b': sections, dates, "});
  refused("b = [1 2]", {accepted});
  refused("b = '1' 2", {accepted});
  refused("b = \"\\x\"", {"escape"});
  refused(std::string("b = \0", 5), {accepted});
  refused("b = [1, }", {"column 9", accepted});
  refused("[?]", {"column 2", accepted});
  for (const std::string c : {"\xc3\xa9", "\xc2\xa0", "\xe3\x80\x82", "\xef\xbb\xbf"})
    for (const std::string& text : {c + " = 1", "b" + c + " = 1", "b = " + c, "b = 1" + c})

      refused(text, {accepted});
  refused("b = 1\xe3\x80\x82", {"saw '\xe3\x80\x82'"});
  expect_error([&] { read_toml("a = 1\nb = '\xff'"); }, {"invalid utf-8", accepted});
  EXPECT_THROW(read_toml("b = " + std::string(100'000, '[')), Error);
}

TEST(TomlText, NoBytesAreTooStrange) {
  auto rng = testing::generator("bytes");
  for (int i = 0; i < 20'000; ++i) {
    std::string text;
    for (int n = testing::draw_int(rng, 0, 30); n > 0; --n)
      text += testing::draw_bool(rng, 0.2) ? static_cast<char>(testing::draw_int(rng, 0, 255))
                                           : "ab=[],\"'\\\n #1.{}-"[testing::draw_int(rng, 0, 16)];
    try {
      for (const TomlEntry& e : read_toml(text)) EXPECT_FALSE(e.values.empty()) << text;
    } catch (const Error&) {
    }
  }
}

}  // namespace
}  // namespace tandem::apps
