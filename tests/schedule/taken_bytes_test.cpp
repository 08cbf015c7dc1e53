// Which bytes are taken when: the same as a table of every byte at every time.
#include <algorithm>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/memory/taken_bytes.h>

#include "seed.h"

namespace tandem::testing {
using namespace engine;
namespace {

std::vector<std::pair<std::int64_t, std::int64_t>> pairs(const ByteSet& set) {
  std::vector<std::pair<std::int64_t, std::int64_t>> pairs;
  for (const ByteRange& r : set.ranges()) pairs.emplace_back(r.begin, r.end);
  return pairs;
}

TEST(ByteSet, JoinsRangesThatTouchOrOverlap) {
  using Pairs = std::vector<std::pair<std::int64_t, std::int64_t>>;
  ByteSet set;
  set.add({10, 20});
  set.add({40, 50});
  EXPECT_EQ(pairs(set), (Pairs{{10, 20}, {40, 50}}));
  set.add({20, 25});
  EXPECT_EQ(pairs(set), (Pairs{{10, 25}, {40, 50}}));
  set.add({0, 5});
  EXPECT_EQ(pairs(set), (Pairs{{0, 5}, {10, 25}, {40, 50}}));
  set.add({12, 14});
  EXPECT_EQ(pairs(set), (Pairs{{0, 5}, {10, 25}, {40, 50}}));
  set.add({3, 45});
  EXPECT_EQ(pairs(set), (Pairs{{0, 50}}));
}

TEST(TakenBytes, AreThoseOfATable) {
  std::mt19937_64 random = generator("taken bytes");
  const auto below = [&](std::int64_t n) {
    return std::int64_t{draw_int(random, 0, static_cast<int>(n) - 1)};
  };
  for (int round = 0; round < 300; ++round) {
    const std::int64_t cycle = 1 + below(40), bytes = 30;
    const auto interval = [&] { return CyclicInterval{below(cycle), 1 + below(cycle)}; };
    std::vector<CyclicInterval> when(static_cast<std::size_t>(1 + below(20)));
    std::ranges::generate(when, interval);
    TakenBytes taken(cycle, when);
    std::vector<std::vector<bool>> table(static_cast<std::size_t>(cycle), std::vector<bool>(bytes));
    for (const CyclicInterval& w : when) {
      const std::int64_t begin = below(bytes), end = begin + 1 + below(bytes - begin);
      taken.take(w, {begin, end});
      for (std::int64_t t = 0; t < w.length; ++t)
        for (std::int64_t b = begin; b < end; ++b)
          table[static_cast<std::size_t>((w.begin + t) % cycle)][static_cast<std::size_t>(b)] = true;
    }
    for (int query = 0; query < 20; ++query) {
      const CyclicInterval q = interval();
      std::vector<ByteRange> found;
      taken.find(q, found);
      std::vector<bool> expected(bytes), got(bytes);
      for (std::int64_t t = 0; t < q.length; ++t)
        for (std::size_t b = 0; b < expected.size(); ++b)
          if (table[static_cast<std::size_t>((q.begin + t) % cycle)][b]) expected[b] = true;
      for (const ByteRange& r : found)
        for (std::int64_t b = r.begin; b < r.end; ++b) got[static_cast<std::size_t>(b)] = true;
      EXPECT_EQ(got, expected) << "round " << round << ", from " << q.begin << " for " << q.length << " of "
                               << cycle;
    }
  }
}

}  // namespace
}  // namespace tandem::testing
