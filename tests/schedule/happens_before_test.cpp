// HappensBefore agrees with a search through the unrolled Program.
#include <gtest/gtest.h>

#include <vector>

#include <fmt/format.h>

#include <tandem/core/schedule/happens_before.h>
#include <tandem/memory/placement.h>

#include "program_builder.h"
#include "random_programs.h"
#include "seed.h"

namespace tandem::testing {
using namespace engine;
namespace {

// For every execution, index instructions · unit + instruction, whether it follows `from` of unit 0.
std::vector<char> followers(const Program& p, InstructionId from, int units) {
  const auto n = static_cast<std::int64_t>(p.instructions.size());
  std::vector<char> follows(at(n * units), 0);
  std::vector<std::int64_t> last_on(p.lanes.size(), -1);  // the previous execution on each lane
  for (std::int64_t i = 0; i < n * units; ++i) {
    const Instruction& instruction = p.instructions[at(i % n)];
    const auto is_after = [&](std::int64_t before) {
      return before == from || (before >= 0 && follows[at(before)]);
    };
    bool after = is_after(last_on[at(instruction.lane)]);
    for (const Wait& w : instruction.waits)
      if (const std::int64_t awaited = (i / n - w.back) * n + w.instruction; awaited >= 0)
        after = after || is_after(awaited);
    follows[at(i)] = after && i != from;
    last_on[at(instruction.lane)] = i;
  }
  return follows;
}

TEST(HappensBefore, IsReachabilityInTheUnrolledProgram) {
  auto rng = generator("happens before");
  constexpr int kUnits = 12;
  for (int i = 0; i < 300; ++i) {
    const Program p = planned(random_schedule(rng));
    const HappensBefore order(p);
    const auto n = p.instructions.next_id();
    for (InstructionId from = 0; from < n; ++from) {
      const auto follows = followers(p, from, kUnits);
      for (InstructionId to = 0; to < n; ++to)
        for (int units = 0; units < kUnits; ++units)
          ASSERT_EQ(order.precedes(from, to, units), bool(follows[at(units * n + to)]))
              << fmt::format("Program {}: {} before {} {} units later", i, p.instructions[at(from)].name,
                             p.instructions[at(to)].name, units);
    }
  }
}

TEST(HappensBefore, NothingPrecedesAnEarlierExecution) {
  ProgramBuilder b;
  b.add({.name = "A", .lane = b.lane(0)});
  b.add({.name = "B", .lane = b.lane(0, LaneKind::compute, 1)});
  const HappensBefore order(b.program());
  EXPECT_TRUE(order.precedes(0, 0, 1)) << "a lane runs in order";
  EXPECT_FALSE(order.precedes(0, 0, 0)) << "no execution precedes itself";
  EXPECT_FALSE(order.precedes(0, 0, -1));
  for (int units = 0; units < 5; ++units)
    EXPECT_FALSE(order.precedes(0, 1, units)) << "nothing connects these lanes";
  EXPECT_EQ(order.first_after(0, b.lane(0, LaneKind::compute, 1)), HappensBefore::kNever);
}

}  // namespace
}  // namespace tandem::testing
