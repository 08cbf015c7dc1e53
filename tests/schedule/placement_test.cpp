// Memory: which values share bytes, how much it is in all, and that nothing is overwritten too early.
#include <gtest/gtest.h>

#include <algorithm>

#include <fmt/format.h>

#include <tandem/core/base/error.h>
#include <tandem/core/base/memory.h>
#include <tandem/core/runtime/sim_backend.h>
#include <tandem/core/schedule/accesses.h>
#include <tandem/core/schedule/program_json.h>
#include <tandem/core/schedule/verify.h>
#include <tandem/memory/placement.h>

#include "program_builder.h"
#include "program_run.h"
#include "random_programs.h"
#include "schedules.h"
#include "seed.h"

namespace tandem::testing {
using namespace engine;
namespace {

#ifdef TANDEM_SANITIZED
constexpr int kRandomPrograms = 150;
#else
constexpr int kRandomPrograms = 1200;
#endif
std::int64_t most_slots(const Program& p) {
  std::int64_t most = 1;
  for (const MemoryBlock& b : p.blocks) most = std::max<std::int64_t>(most, b.slots);
  return most;
}

TEST(Placement, ChainReusesMemory) {
  ProgramBuilder b;
  MemberId before = -1;
  for (int i = 0; i < 100; ++i) {
    const MemberId x = b.value(fmt::format("x{}", i), 0, 1000);
    Instruction s{.name = fmt::format("S{}", i), .lane = b.lane(0), .writes = {x}};
    if (before >= 0) s.reads.push_back(before);
    b.add(std::move(s));
    before = x;
  }
  const Program p = planned(b.take());
  EXPECT_EQ(p.memory[0].work, 2 * align_up(1000)) << "an instruction's input and output";
  EXPECT_EQ(p.memory[0].live_peak, p.memory[0].work);
  EXPECT_EQ(planned_peak(p, 0), p.memory[0].work);
}

// x is made and used on one lane, y on another.
Program two_lanes(bool y_after_x, bool x_after_y) {
  ProgramBuilder b;
  const LaneId one = b.lane(0), two = b.lane(0, LaneKind::compute, 1);
  const MemberId x = b.value("x", 0, 640), y = b.value("y", 0, 640);
  b.add({.name = "make x", .lane = one, .writes = {x}});
  b.add({.name = "use x", .lane = one, .reads = {x}});
  b.add({.name = "make y", .lane = two, .writes = {y}});
  b.add({.name = "use y", .lane = two, .reads = {y}});
  if (y_after_x) b.instruction(2).waits.push_back({1, 0});
  if (x_after_y) b.instruction(0).waits.push_back({3, 1});
  return planned(b.take());
}

TEST(Placement, LanesShareBytesOnlyIfBothDirectionsOfTheCycleAreOrdered) {
  EXPECT_EQ(two_lanes(false, false).memory[0].work, 2 * 640);
  EXPECT_EQ(two_lanes(true, false).memory[0].work, 2 * 640) << "the next x does not wait for y";
  EXPECT_EQ(two_lanes(false, true).memory[0].work, 2 * 640) << "y does not wait for x";
  EXPECT_EQ(two_lanes(true, true).memory[0].work, 640);
  for (bool a : {false, true})
    for (bool c : {false, true}) EXPECT_NO_THROW(verify(two_lanes(a, c)));
}

TEST(Placement, ValueReadOnAnotherLaneLivesUntilThatReadIsAwaited) {
  ProgramBuilder b;
  const LaneId compute = b.lane(0), out = b.lane(0, LaneKind::copy_out);
  const MemberId x = b.value("x", 0), h = b.value("h", 0, 64, Arena::host), y = b.value("y", 0),
                 z = b.value("z", 0);
  b.add({.name = "make x", .lane = compute, .writes = {x}});
  const InstructionId copy = b.add({.name = "copy x", .lane = out, .reads = {x}, .writes = {h}});
  b.add({.name = "make y", .lane = compute, .writes = {y}});
  b.add({.name = "make z", .lane = compute, .waits = {{copy, 0}}, .writes = {z}});
  const Program p = planned(b.take());
  EXPECT_EQ(p.blocks[at(find_block(p, "x"))].begin, 0);
  EXPECT_EQ(p.blocks[at(find_block(p, "x"))].end, 3);
  EXPECT_EQ(block_named(const_cast<Program&>(p), "z").offsets,
            block_named(const_cast<Program&>(p), "x").offsets)
      << "z may reuse the place of x";
  EXPECT_EQ(p.memory[0].live_peak, 128);
}

TEST(Placement, AllProgramsShareTheAddressesOfState) {
  const auto states = [](const Program& p) {
    std::vector<std::vector<std::int64_t>> offsets;
    for (const StateBlock& s : p.states) offsets.push_back(p.blocks[at(s.block)].offsets);
    return offsets;
  };
  const auto pipeline = [](int ages) {  // three states; the second is read `ages` batches back
    ProgramBuilder b;
    for (int i = 0; i < 3; ++i) {
      const BlockId w = b.state(fmt::format("w{}", i), 0, 100);
      b.add({.name = fmt::format("U{}", i),
             .lane = b.lane(0),
             .reads = {b.read(w, i == 1 ? ages : 1)},
             .writes = {b.assign(w)},
             .in_place = true});
    }
    return planned(b.take());
  };
  using Offsets = std::vector<std::vector<std::int64_t>>;
  EXPECT_EQ(states(pipeline(1)), (Offsets{{0}, {128}, {256}}));
  EXPECT_EQ(states(pipeline(3)), (Offsets{{0}, {128, 384, 512}, {256}}))
      << "version 0 of every state comes first";
  EXPECT_EQ(pipeline(3).memory[0].state, 640);
}

TEST(Placement, SlotsLieOneStrideApart) {
  const Program p = planned(dualpipe(equal_stages(4, {.activation = 1000})));
  for (const MemoryBlock& b : p.blocks)
    for (std::size_t k = 2; k < b.offsets.size() && b.arena == Arena::work; ++k)
      EXPECT_EQ(b.offsets[k] - b.offsets[k - 1], b.offsets[1] - b.offsets[0]) << b.name;
}

TEST(Placement, PeakOfTheKnownSchedulesIsThePlannedOne) {
  for (int n = 1; n <= 4; ++n) {
    const Pipeline one = equal_stages(n, {.activation = 1000, .weights = 300}),
                   many = equal_stages(n, {.activation = 1000, .weights = 300}, 5);
    for (const Program& p :
         {planned(dualpipe(one)), planned(spectrain(one)), planned(vertical_sync(one)),
          planned(pipedream(one)), planned(double_buffered(many)), planned(gpipe(many)),
          planned(one_f_one_b(many)), planned(overlapped_all_reduce(one)), planned(mu_two(one))}) {
      CpuRun cpu(p);
      cpu.run(most_slots(p));
      for (int device = 0; device < p.devices; ++device) {
        EXPECT_EQ(cpu.executed_peak(device), planned_peak(p, device));
        EXPECT_LE(p.memory[at(device)].live_peak, p.memory[at(device)].work);
        EXPECT_GT(p.memory[at(device)].live_peak, 0);
      }
    }
  }
}

TEST(Placement, LiveBytesOfGPipeAreItsActivations) {
  const int m = 6;
  const Program p = planned(gpipe(equal_stages(1, {.activation = 6400, .weights = 64}, m)));
  EXPECT_EQ(p.memory[0].live_peak, m * 6400 + 64) << "all micro-batches' activations and the first gradient";
}

// For a rank's own memory, its Program and the global Program agree.
TEST(Placement, LiveBytesOfAStageEqualThoseInTheWholeProgram) {
  for (const Program& whole :
       {planned(dualpipe(equal_stages(3))), planned(one_f_one_b(equal_stages(3, {}, 4))),
        planned(pipedream(equal_stages(4)))})
    for (int device = 0; device < whole.devices; ++device) {
      const Program stage = project(whole, device);
      const auto all = live_bytes(whole, device), own = live_bytes(stage, device);
      for (std::size_t s = 0; s < stage.instructions.size(); ++s)
        EXPECT_EQ(own[s], all[at(stage.instructions[s].origin)]) << stage.instructions[s].name;
      EXPECT_EQ(*std::max_element(own.begin(), own.end()), whole.memory[at(device)].live_peak);
    }
}

// ---- random Programs -----------------------------------------------------------------------------------

// Every derived wait is needed.
void expect_derived_waits_needed(const Program& schedule, const Program& plan, std::mt19937_64& rng) {
  std::vector<std::pair<std::size_t, Wait>> derived;
  for (std::size_t s = 0; s < plan.instructions.size(); ++s)
    for (const Wait& w : plan.instructions[s].waits)
      if (const auto& given = schedule.instructions[s].waits;
          std::find(given.begin(), given.end(), w) == given.end())
        derived.emplace_back(s, w);
  if (derived.empty()) return;
  const auto& [s, dropped] = derived[at(draw_int(rng, 0, static_cast<int>(derived.size()) - 1))];
  Program without = plan;
  std::erase(without.instructions[s].waits, dropped);
  EXPECT_THROW(verify_memory(without), Error) << plan.instructions[s].name << " need not wait for "
                                              << plan.instructions[at(dropped.instruction)].name;
}

void expect_same_as_sequential(const Program& plan, CpuRun& cpu, std::int64_t batches) {
  const Record got = cpu.run(batches);
  const Evaluation oracle(plan, batches);
  ASSERT_EQ(got.made, oracle.record().made);
  ASSERT_EQ(got.read, oracle.record().read);
  ASSERT_EQ(got.states, oracle.record().states);

  SimBackend simulated(plan);
  run(simulated, batches);
  EXPECT_EQ(lane_orders(cpu.timeline()), lane_orders(simulated.timeline()));
}

void check_random_program(std::mt19937_64& rng) {
  const Program schedule = random_schedule(rng);
  const Program plan = planned(schedule);
  ASSERT_NO_THROW(verify(plan)) << to_json(plan);
  expect_derived_waits_needed(schedule, plan, rng);
  CpuRun cpu(plan, {.poison = draw_bool(rng, 0.5), .spans = 1000});
  const std::int64_t slots = most_slots(plan);
  for (const std::int64_t batches : {std::int64_t{1}, std::int64_t{2}, 2 * slots + plan.max_lag + 1}) {
    SCOPED_TRACE(fmt::format("{} batches", batches));
    ASSERT_NO_FATAL_FAILURE(expect_same_as_sequential(plan, cpu, batches));
  }
  const bool all_states_used = std::all_of(plan.states.begin(), plan.states.end(), [&](const StateBlock& s) {
    const auto accesses = accesses_by_block(plan);
    return !accesses[at(s.block)].empty();
  });
  for (int device = 0; device < plan.devices; ++device) {
    EXPECT_LE(cpu.executed_peak(device), planned_peak(plan, device));
    if (all_states_used) {
      EXPECT_EQ(cpu.executed_peak(device), planned_peak(plan, device));
    }
    EXPECT_LE(plan.memory[at(device)].live_peak, plan.memory[at(device)].work);
  }
}

TEST(RandomPrograms, GiveTheResultsOfASequentialLoop) {
  auto rng = generator("placement");
  for (int i = 0; i < kRandomPrograms; ++i) {
    SCOPED_TRACE(fmt::format("Program {}", i));
    check_random_program(rng);
    if (HasFailure()) return;
  }
}

// Changes a planned Program at one place, to a correct or an incorrect one.
void disturb(Program& p, std::mt19937_64& rng) {
  Instruction& instruction =
      p.instructions[at(draw_int(rng, 0, static_cast<int>(p.instructions.size()) - 1))];
  const bool waits = !instruction.waits.empty();
  switch (draw_int(rng, 0, 4)) {
    case 0:
      if (waits)
        instruction.waits.erase(instruction.waits.begin() +
                                draw_int(rng, 0, static_cast<int>(instruction.waits.size()) - 1));
      break;
    case 1:
      if (waits)
        ++instruction.waits[at(draw_int(rng, 0, static_cast<int>(instruction.waits.size()) - 1))].back;
      break;
    case 2: instruction.in_place = !instruction.in_place; break;
    default: {  // moves a block in its arena
      if (p.blocks.empty()) return;
      const int last = static_cast<int>(p.blocks.size()) - 1;
      MemoryBlock &one = p.blocks[at(draw_int(rng, 0, last))], &other = p.blocks[at(draw_int(rng, 0, last))];
      if (one.device != other.device || one.arena != other.arena || one.slots != other.slots) return;
      if (draw_bool(rng, 0.5))
        one.offsets = other.offsets;
      else
        std::swap(one.offsets, other.offsets);
    }
  }
}

TEST(RandomPrograms, ThatTheVerifierAcceptsGiveTheResultsOfASequentialLoop) {
  auto rng = generator("disturbed");
  int accepted = 0, refused = 0;
  for (int i = 0; i < kRandomPrograms; ++i) {
    SCOPED_TRACE(fmt::format("Program {}", i));
    Program p = planned(random_schedule(rng));
    for (int changes = draw_int(rng, 1, 3); changes > 0; --changes) disturb(p, rng);
    try {
      verify(p);
      ++accepted;
    } catch (const Error&) {
      ++refused;
      continue;
    }
    CpuRun cpu(p, {.poison = draw_bool(rng, 0.5), .spans = 1000});
    for (const std::int64_t batches : {std::int64_t{1}, 2 * most_slots(p) + p.max_lag + 1})
      ASSERT_NO_FATAL_FAILURE(expect_same_as_sequential(p, cpu, batches));
    if (HasFailure()) return;
  }
  EXPECT_GT(accepted, kRandomPrograms / 10);
  EXPECT_GT(refused, kRandomPrograms / 10);
}

}  // namespace
}  // namespace tandem::testing
