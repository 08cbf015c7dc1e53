// The known schedules as Programs: they match the design's table, and are planned, proved, and executed.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>

#include <fmt/format.h>

#include <tandem/core/base/error.h>
#include <tandem/core/schedule/verify.h>
#include <tandem/core/schedule/waits.h>
#include <tandem/memory/placement.h>

#include "program_builder.h"
#include "program_run.h"
#include "schedules.h"

namespace tandem::testing {
using namespace engine;
namespace {

constexpr int kMaxStages = 5;
constexpr std::int64_t kMaxBatches = 17;
// A row of the table. On stage k of N, F reads what batch b − forward assigned, B reads what batch b −
// backward assigned, and the stage holds `versions` of the weights.
struct Row {
  std::string name;
  std::function<Program(int stages)> make;
  std::function<int(int n, int k)> forward, backward, versions;
};
std::ostream& operator<<(std::ostream& out, const Row& row) { return out << row.name; }

int one(int, int) { return 1; }
int two(int, int) { return 2; }

std::vector<Row> table() {
  const auto with = [](Program (*schedule)(const Pipeline&), int microbatches, bool barriers = false) {
    return [=](int stages) {
      Pipeline p = equal_stages(stages, {}, std::max(microbatches, 1));
      if (microbatches == 0) p.microbatches = stages + 1;  // 2BW: m ≥ N
      p.barriers = barriers;
      return schedule(p);
    };
  };
  const auto dual = [](int n, int k) { return 2 * n - 1 - 2 * k; };
  const auto stash = [](int n, int k) { return n - k; };
  const auto entry = [](int n, int k) { return 2 * n - 1 - k; };
  return {
      {"plain", with(accumulation, 1), one, one, one},
      {"accumulation", with(accumulation, 4), one, one, one},
      {"GPipe", with(gpipe, 4), one, one, one},
      {"1F1B", with(one_f_one_b, 6), one, one, one},
      {"DualPipe", with(dualpipe, 1), dual, one, one},
      {"DualPipe_lockstep", with(dualpipe, 1, true), dual, one, one},
      {"SpecTrain", with(spectrain, 1), dual, one, one},
      {"SpecTrain_lockstep", with(spectrain, 1, true), dual, one, one},
      {"PipeDream", with(pipedream, 1), stash, stash, stash},
      {"PipeDream_lockstep", with(pipedream, 1, true), stash, stash, stash},
      {"vertical_sync", with(vertical_sync, 1), entry, entry, entry},
      {"double_buffered", with(double_buffered, 0), two, two, two},
      {"overlapped_all_reduce", with(overlapped_all_reduce, 1), one, one, one},
      {"mu_two", with(mu_two, 1), one, one, one},
  };
}

class KnownSchedule : public ::testing::TestWithParam<Row> {};
INSTANTIATE_TEST_SUITE_P(Table, KnownSchedule, ::testing::ValuesIn(table()), [](const auto& info) {
  std::string name = info.param.name;
  if (name == "1F1B") return std::string("OneFOneB");
  return name;
});

TEST_P(KnownSchedule, IsProvedFreeOfRacesAndDeadlocks) {
  for (int n = 1; n <= kMaxStages; ++n) {
    SCOPED_TRACE(fmt::format("{} stages", n));
    const Program p = planned(GetParam().make(n));
    EXPECT_NO_THROW(verify(p));
  }
}

TEST_P(KnownSchedule, HoldsTheWeightVersionsOfTheTable) {
  for (int n = 1; n <= kMaxStages; ++n) {
    const Program p = planned(GetParam().make(n));
    for (const StateBlock& state : p.states) {
      const MemoryBlock& weights = p.blocks[at(state.block)];
      const int k = weights.device;
      EXPECT_EQ(weights.slots, GetParam().versions(n, k)) << state.path << " on stage " << k << " of " << n;
    }
  }
}

// The bytes in the weights' memory identify the version that each instruction read.
void expect_versions_read(const Row& row, int n, const Program& p, const Evaluation& oracle,
                          const Record& got, std::int64_t batches) {
  int reads = 0;
  for (std::size_t s = 0; s < p.instructions.size(); ++s) {
    const Instruction& instruction = p.instructions[s];
    if (instruction.tag.phase == Phase::update) continue;
    const int k = p.lanes[at(instruction.lane)].device;
    const int age = instruction.tag.phase == Phase::forward ? row.forward(n, k) : row.backward(n, k);
    for (std::size_t i = 0; i < instruction.reads.size(); ++i) {
      if (!is_state(p, instruction.reads[i])) continue;
      const BlockId block = p.members[at(instruction.reads[i])].block;
      for (std::int64_t b = 0; b < batches; ++b, ++reads)
        EXPECT_EQ(oracle.version(block, got.read[s][at(b)][i]), std::max<std::int64_t>(0, b - age + 1))
            << instruction.name << " of batch " << b << " reads " << p.blocks[at(block)].name << ", " << n
            << " stages";
    }
  }
  EXPECT_GE(reads, 2 * n * batches) << "F and B of every stage read weights";
}

TEST_P(KnownSchedule, ExecutesWithTheVersionsAndResultsOfASequentialLoop) {
  for (int n = 1; n <= kMaxStages; ++n) {
    const Program p = planned(GetParam().make(n));
    CpuRun cpu(p);
    for (std::int64_t batches = 1; batches <= kMaxBatches; ++batches) {
      SCOPED_TRACE(fmt::format("{} stages, {} batches", n, batches));
      const Record got = cpu.run(batches);
      const Evaluation oracle(p, batches);
      ASSERT_EQ(got.made, oracle.record().made);
      EXPECT_EQ(got.states, oracle.record().states) << "after a drained run the current version is version 0";
      expect_versions_read(GetParam(), n, p, oracle, got, batches);
    }
  }
}

// Whether a version exists that is younger than the one that the instruction reads.
bool can_read_younger(Program p, InstructionId s, MemberId m) {
  p.members.push_back(p.members[at(m)]);
  ++p.members.back().shift;
  auto& reads = p.instructions[at(s)].reads;
  std::replace(reads.begin(), reads.end(), m, MemberId(p.members.next_id() - 1));
  try {
    check_unplanned(p);
    return true;
  } catch (const Error&) {
    return false;
  }
}

// If a schedule does not choose to read old weights, the table gives the ages of the newest that exist.
TEST(ScheduleTable, NamesTheNewestWeightsThatExist) {
  for (const Row& row : table()) {
    if (row.name == "double_buffered" || row.name == "vertical_sync") continue;
    const bool stash = row.name.starts_with("PipeDream");  // B uses the version that F used
    for (int n = 1; n <= kMaxStages; ++n) {
      const Program p = row.make(n);
      for (const InstructionId s : p.instructions.ids()) {
        const Phase phase = p.instructions[at(s)].tag.phase;
        if (phase == Phase::update || (stash && phase == Phase::backward)) continue;
        for (MemberId m : p.instructions[at(s)].reads)
          if (is_state(p, m)) {
            EXPECT_FALSE(can_read_younger(p, s, m))
                << row.name << ", " << p.instructions[at(s)].name << ", " << n << " stages";
          }
      }
    }
  }
}

TEST(DualPipe, HoldsTheActivationsOfAllBatchesInFlight) {
  for (int n = 1; n <= kMaxStages; ++n)
    for (const auto schedule : {dualpipe, spectrain, vertical_sync}) {
      const Program p = planned(schedule(equal_stages(n)));
      for (int k = 0; k < n; ++k)
        EXPECT_EQ(p.blocks[at(find_block(p, fmt::format("a{}", k)))].slots, 2 * (n - 1 - k) + 1)
            << k << " of " << n;
    }
}

TEST(PipeDream, HoldsTheActivationsOfAllBatchesInFlight) {
  for (int n = 1; n <= kMaxStages; ++n) {
    const Program p = planned(pipedream(equal_stages(n)));
    for (int k = 0; k < n; ++k)
      EXPECT_EQ(p.blocks[at(find_block(p, fmt::format("a{}", k)))].slots, n - k) << k << " of " << n;
  }
}

// Micro-batches are unrolled, so the number of held activations is the number of different places of a
// stage's activations.
int activation_places(const Program& p, int stage) {
  std::set<std::int64_t> offsets;
  for (const MemoryBlock& b : p.blocks)
    if (b.name.starts_with(fmt::format("a{}/", stage))) offsets.insert(b.offsets.begin(), b.offsets.end());
  return static_cast<int>(offsets.size());
}

TEST(OneFOneB, HoldsTheActivationsOfAllMicroBatchesInFlight) {
  for (int n = 1; n <= kMaxStages; ++n)
    for (int m : {2, 4, 9}) {
      const Program p = planned(one_f_one_b(equal_stages(n, {.activation = 4096}, m)));
      for (int k = 0; k < n; ++k)
        EXPECT_EQ(activation_places(p, k), std::min(n - k, m))
            << k << " of " << n << ", " << m << " micro-batches";
    }
}

TEST(GPipe, HoldsTheActivationsOfAllMicroBatches) {
  for (int n = 1; n <= kMaxStages; ++n) {
    const Program p = planned(gpipe(equal_stages(n, {.activation = 4096}, 7)));
    for (int k = 0; k < n; ++k) EXPECT_EQ(activation_places(p, k), 7);
  }
}

TEST(DoubleBuffered, NeedsAsManyMicroBatchesAsStages) {
  EXPECT_THROW(double_buffered(equal_stages(4, {}, 3)), Error);
}

TEST(MuTwo, LifetimesOfTheModelAheadWrapAroundTheUnit) {
  const Program p = planned(mu_two(equal_stages(3)));
  const auto n = static_cast<std::int64_t>(p.instructions.size());
  const MemoryBlock& ahead = p.blocks[at(find_block(p, "a1.2"))];
  EXPECT_GT(ahead.end / n, ahead.begin / n) << "one unit makes it, the next one uses it";
  EXPECT_EQ(ahead.slots, 1);
  const MemoryBlock& other = p.blocks[at(find_block(p, "a2.2"))];
  EXPECT_EQ(other.end / n, other.begin / n);
}

}  // namespace
}  // namespace tandem::testing
