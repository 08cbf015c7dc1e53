// Processes that take from the same memory are short together.
#include <tandem/core/runtime/memory_need.h>

#include <gtest/gtest.h>

namespace tandem::engine {
namespace {

TEST(MemoryNeed, ProcessesOfOneMachineTakeFromTheSameMemory) {
  const std::vector<MemoryPool> first{{7, 100}}, as_seen_later{{7, 90}}, other_machine{{8, 100}};
  const std::vector<MemoryNeed> fits{{50, 1, first}, {40, 1, as_seen_later}, {100, 1, other_machine}};
  for (const auto& shortage : shortages(fits)) EXPECT_FALSE(shortage);

  const std::vector<MemoryNeed> needs{{50, 1, first}, {41, 2, as_seen_later}, {100, 1, other_machine}};
  const auto found = shortages(needs);
  for (const std::size_t process : {0, 1}) {
    ASSERT_TRUE(found[process]) << process;
    EXPECT_EQ(found[process]->needed, 91);
    EXPECT_EQ(found[process]->free, 90);
    EXPECT_EQ(found[process]->ranks, 3);
  }
  EXPECT_FALSE(found[2]);
}

TEST(MemoryNeed, ALimitOfOneControlGroupConcernsItsProcessesAlone) {
  const std::vector<MemoryNeed> needs{{30, 1, {{7, 100}, {70, 20}}}, {30, 1, {{7, 100}, {71, 40}}}};
  const auto found = shortages(needs);
  ASSERT_TRUE(found[0]);
  EXPECT_EQ(found[0]->needed, 30);
  EXPECT_EQ(found[0]->free, 20);
  EXPECT_FALSE(found[1]);
}

TEST(MemoryNeed, ThePoolInWhichMostIsMissingIsNamed) {
  const std::vector<MemoryNeed> needs{{60, 1, {{7, 100}, {70, 50}}}, {60, 1, {{7, 100}, {71, 60}}}};
  const auto found = shortages(needs);
  ASSERT_TRUE(found[0] && found[1]);
  EXPECT_EQ(found[0]->needed, 120);
  EXPECT_EQ(found[1]->needed, 120);
}

TEST(MemoryNeed, APoolOfThisMachineIsKnownAgain) {
  const auto once = memory_pools(), again = memory_pools();
  ASSERT_EQ(once.size(), again.size());
  for (std::size_t i = 0; i < once.size(); ++i) EXPECT_EQ(once[i].id, again[i].id);
}

}  // namespace
}  // namespace tandem::engine
