#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <vector>

#include <tandem/memory/memory_plan.h>

/// What the search for the optimal memory plan reaches.
namespace tandem::engine::optimal {

using Set = std::uint64_t;  // of values
constexpr int kMostValues = 64;
constexpr double kTolerance = 1e-9;  // ms

struct Copy {
  int value;
  double end;
};

// A way to reach a state. Two ways to the same state can differ in their times, of which neither need be
// better in all.
struct Label {
  std::array<int, 2> ran{};  // nodes of each graph
  Set resident = 0, host = 0, to_host = 0, to_device = 0;
  double clock = 0;
  std::array<double, 2> channels{};  // when they are free: to the host, from it
  std::vector<Copy> copies;          // under way, by value
  std::int64_t live = 0;
  int start = 0;  // of the period
  // What may begin to move right now. No other copy begins: it could have begun earlier.
  Set may_leave = 0;
  bool may_return = false;
  Set unread = 0;  // recomputed since the last node ran, and not read; its sources are still there
  int parent = -1;
  std::vector<MemoryStep> steps;  // since the parent
};

using State = std::tuple<std::int32_t, int, Set, Set, Set>;
inline State state_of(const Label& l) {
  return {l.ran[0] << 16 | l.ran[1], l.start, l.resident, l.to_host, l.to_device};
}
struct StateHash {
  std::size_t operator()(const State& s) const {
    std::uint64_t h = 0;
    const auto mix = [&](std::uint64_t x) { h = (h ^ x) * 0x9E3779B97F4A7C15ULL, h ^= h >> 29; };
    mix(static_cast<std::uint64_t>(std::get<0>(s))), mix(static_cast<std::uint64_t>(std::get<1>(s)));
    mix(std::get<2>(s)), mix(std::get<3>(s)), mix(std::get<4>(s));
    return h;
  }
};

// Whether `a` can do all that `b` can, no later.
inline bool no_worse(const Label& a, const Label& b) {
  if ((a.host & b.host) != b.host || a.clock > b.clock + kTolerance) return false;
  if ((a.may_leave & b.may_leave) != b.may_leave || a.may_return < b.may_return) return false;
  if ((a.unread & ~b.unread) != 0) return false;
  for (std::size_t c = 0; c < 2; ++c)
    if (std::max(a.channels[c], a.clock) > std::max(b.channels[c], b.clock) + kTolerance) return false;
  for (std::size_t i = 0; i < a.copies.size(); ++i)
    if (std::max(a.copies[i].end, a.clock) > std::max(b.copies[i].end, b.clock) + kTolerance) return false;
  return true;
}

}  // namespace tandem::engine::optimal
