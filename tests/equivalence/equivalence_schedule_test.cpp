// What schedules guarantee about time: barriers, the versions of the weights, and that execution has the
// simulator's order.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include <tandem/core/runtime/sim_backend.h>
#include <tandem/plan/build.h>

#include "program_run.h"
#include "training_run.h"

namespace tandem::testing {
using namespace engine;
namespace {

// An instruction stays on its side of every barrier of its unit. The rank's own clock is enough to check
// that.
void expect_barriers_part_the_list(const Program& p, const Timeline& t, int barriers_per_unit) {
  std::int64_t met = 0;
  for (const Span& barrier : t.spans) {
    const Instruction& instruction = p.instruction(barrier.instruction);
    if (!instruction.barrier) continue;
    ++met;
    for (const Span& s : t.spans) {
      if (s.rank != barrier.rank || s.unit != barrier.unit || s.instruction == barrier.instruction ||
          p.lane(s.lane).kind != LaneKind::compute)
        continue;
      if (s.instruction < barrier.instruction)
        EXPECT_LE(s.end, barrier.begin) << p.instruction(s.instruction).name << " in unit " << s.unit;
      else
        EXPECT_GE(s.begin, barrier.end) << p.instruction(s.instruction).name << " in unit " << s.unit;
    }
  }
  EXPECT_EQ(met, barriers_per_unit * 8 * p.devices * p.replicas);
}

TEST(ScheduleEquivalence, LockstepChangesOnlyTheTime) {
  Job job = small_residual_job(DType::f64);
  job.drains = {8};
  for (const std::string& kind : schedule_names())
    for (int stages : {1, 2, 4})
      for (int replicas : {1, 2}) {
        SCOPED_TRACE(::testing::Message() << kind << " stages " << stages << " replicas " << replicas);
        Strategy s = plain();
        s.schedule = kind;
        s.stages = stages;
        s.chunks = kind == "interleaved" && stages > 1 ? 2 : 1;
        s.replicas = replicas;
        s.microbatches = kind == "pipedream-2bw" ? std::max(2, stages) : 2;
        const Outcome free = train(job, s);
        s.lockstep = true;
        const Outcome lockstep = train(job, s);
        expect_same_training(free, lockstep);
        const int ticks = kind == "pipedream-2bw"         ? 2 * s.microbatches
                          : kind.starts_with("pipedream") ? 2
                                                          : 1;
        expect_barriers_part_the_list(lockstep.program, lockstep.timeline, ticks);
      }
}

// The table of docs/design.md, written out by hand. Rows are stages, entries {age of F's read, age of B's
// read, versions of the weights}.
TEST(ScheduleEquivalence, BuiltProgramsReadTheWeightsOfTheTable) {
  using Row = std::array<int, 3>;
  const std::map<std::pair<std::string, int>, std::vector<Row>> table = {
      {{"gpipe", 2}, {{1, 1, 1}, {1, 1, 1}}},
      {{"1f1b", 3}, {{1, 1, 1}, {1, 1, 1}, {1, 1, 1}}},
      {{"dualpipe", 1}, {{1, 1, 1}}},
      {{"dualpipe", 2}, {{3, 1, 1}, {1, 1, 1}}},
      {{"dualpipe", 3}, {{5, 1, 1}, {3, 1, 1}, {1, 1, 1}}},
      {{"dualpipe", 4}, {{7, 1, 1}, {5, 1, 1}, {3, 1, 1}, {1, 1, 1}}},
      {{"pipedream", 2}, {{2, 2, 2}, {1, 1, 1}}},
      {{"pipedream", 3}, {{3, 3, 3}, {2, 2, 2}, {1, 1, 1}}},
      {{"pipedream", 4}, {{4, 4, 4}, {3, 3, 3}, {2, 2, 2}, {1, 1, 1}}},
      {{"pipedream-vs", 1}, {{1, 1, 1}}},
      {{"pipedream-vs", 4}, {{4, 4, 4}, {4, 4, 4}, {4, 4, 4}, {4, 4, 4}}},
      {{"pipedream-2bw", 4}, {{2, 2, 2}, {2, 2, 2}, {2, 2, 2}, {2, 2, 2}}},
      {{"dualpipe-vs", 3}, {{5, 5, 5}, {4, 4, 4}, {3, 3, 3}}},
      {{"dualpipe-vs", 4}, {{7, 7, 7}, {6, 6, 6}, {5, 5, 5}, {4, 4, 4}}}};
  for (const auto& [key, rows] : table) {
    Strategy s = plain();
    s.schedule = key.first;
    s.stages = key.second;
    if (s.schedule == "pipedream-2bw") s.microbatches = s.stages;
    const Program p = program_of(small_residual_job(), s);
    int weights = 0;
    for (const Instruction& instruction : p.instructions)
      for (MemberId m : instruction.reads) {
        const Member& member = p.member(m);
        const MemoryBlock& block = p.block(member.block);
        if (block.arena != Arena::state || !block.name.ends_with(".weight") ||
            instruction.tag.phase == Phase::update)
          continue;
        const Row& row = rows[static_cast<std::size_t>(instruction.tag.stage)];
        SCOPED_TRACE(::testing::Message() << key.first << " N=" << key.second << " stage "
                                          << instruction.tag.stage << " " << instruction.name);
        EXPECT_EQ(row[instruction.tag.phase == Phase::forward ? 0 : 1], 1 - member.shift);
        // Backward does not read the first layer's weight, since the data need no gradient.
        if (instruction.tag.phase == Phase::backward) {
          EXPECT_EQ(row[2], block.slots);
        }
        ++weights;
      }
    EXPECT_GT(weights, 10);
  }
}

// Of lanes, the whole order; between lanes and between devices, all that waits, transfers and barriers fix.
TEST(ScheduleEquivalence, SimulatedOrderMatchesExecution) {
  Job job = small_residual_job();
  job.drains = {7};
  for (const std::string& kind : schedule_names())
    for (const bool lockstep : {false, true}) {
      SCOPED_TRACE(::testing::Message() << kind << (lockstep ? " in lockstep" : ""));
      Strategy s = plain();
      s.chunks = kind == "interleaved" ? 2 : 1;
      s.stages = 2 * s.chunks;
      s.microbatches = 2;
      s.schedule = kind;
      s.lockstep = lockstep;
      s.swap = {"block0"};
      const Outcome out = train(job, s);
      Program program = out.program;
      for (std::size_t i = 0; i < program.instructions.size(); ++i)
        program.instructions[i].cost.seconds = 1e-3 * static_cast<double>(1 + i % 7);
      SimBackend sim(program);
      run(sim, 7);
      EXPECT_EQ(lane_orders(sim.timeline()), lane_orders(out.timeline));
      const FixedOrders executed = expect_fixed_orders(program, out.timeline),
                        simulated = expect_fixed_orders(program, sim.timeline());
      EXPECT_EQ(executed.waits, simulated.waits);
      EXPECT_EQ(executed.channels, simulated.channels);
      EXPECT_GT(simulated.waits, 7 * 10);
      EXPECT_GT(simulated.channels, 7 * (lockstep ? 4 : 3));
    }
}

}  // namespace
}  // namespace tandem::testing
