// Planted faults: the verifier must refuse them and name the instructions concerned.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include <fmt/format.h>

#include <tandem/core/base/error.h>
#include <tandem/core/schedule/verify.h>
#include <tandem/memory/placement.h>

#include "expect_error.h"
#include "program_builder.h"
#include "schedules.h"

namespace tandem::testing {
using namespace engine;
namespace {

std::string refusal(const Program& p) {
  return message_of([&] { verify(p); });
}

// A fault planted in a correct Program, and the words that the refusal must contain.
struct Fault {
  std::string name;
  Program program;  // planned, correct
  std::function<void(Program&)> plant;
  std::vector<std::string> mentions;
};
std::ostream& operator<<(std::ostream& out, const Fault& f) { return out << f.name; }

// ---- correct Programs ----------------------------------------------------------------------------------

Program dualpipe3() { return planned(dualpipe(equal_stages(3))); }

// Two values of F are parked on the host while X and Y compute, and fetched for B.
Program swapping() {
  ProgramBuilder b;
  const LaneId compute = b.lane(0), out = b.lane(0, LaneKind::copy_out), in = b.lane(0, LaneKind::copy_in);
  const MemberId a = b.value("a", 0, 512), c = b.value("c", 0, 512), x = b.value("x", 0, 512),
                 y = b.value("y", 0, 512);
  const MemberId ha = b.value("ha", 0, 512, Arena::host), hc = b.value("hc", 0, 512, Arena::host);
  const MemberId a2 = b.value("a'", 0, 512), c2 = b.value("c'", 0, 512), loss = b.value("loss", 0);
  b.add({.name = "F", .lane = compute, .writes = {a, c}});
  b.add({.name = "out a", .lane = out, .reads = {a}, .writes = {ha}});
  b.add({.name = "out c", .lane = out, .reads = {c}, .writes = {hc}});
  b.add({.name = "X", .lane = compute, .writes = {x}});
  b.add({.name = "Y", .lane = compute, .reads = {x}, .writes = {y}});
  b.add({.name = "in a", .lane = in, .reads = {ha}, .writes = {a2}});
  b.add({.name = "in c", .lane = in, .reads = {hc}, .writes = {c2}});
  b.add({.name = "B", .lane = compute, .reads = {a2, c2, y}, .writes = {loss}});
  return planned(b.take());
}

// Two gradients next to each other, reduced together in place; an unused state; a reader beside an in-place
// op.
Program reducing() {
  ProgramBuilder b;
  const LaneId compute = b.lane(0), other = b.lane(0, LaneKind::compute, 1),
               collective = b.lane(0, LaneKind::collective);
  const BlockId w = b.state("w", 0, 128), v = b.state("v", 0, 128), group = b.block("group", 0, 128);
  const BlockId running = b.state("running", 0, 128);
  b.state("kept", 0, 128);
  const MemberId x = b.value("x", 0), y = b.over("y", x), z = b.value("z", 0);
  const MemberId g1 = b.part("g1", group, 0, 64), g0 = b.part("g0", group, 64, 64);
  const MemberId r1 = b.over("r1", g1), r0 = b.over("r0", g0);
  const MemberId ws0 = b.value("ws0", 0, 256), ws1 = b.value("ws1", 0, 256), moment = b.value("moment", 0);
  b.add({.name = "F", .lane = compute, .reads = {b.read(w, 1)}, .writes = {x}});
  b.add({.name = "augment", .lane = compute, .writes = {ws0}});
  b.add({.name = "monitor", .lane = other, .reads = {x}, .writes = {z, b.assign(running), ws1}});
  b.add({.name = "relu", .lane = compute, .reads = {x}, .writes = {y}, .in_place = true});
  b.add({.name = "B1", .lane = compute, .reads = {y, b.read(w, 1)}, .writes = {g1}});
  b.add({.name = "B0", .lane = compute, .reads = {y}, .writes = {g0}});
  b.add({.name = "R",
         .lane = collective,
         .reads = {g1, g0},
         .writes = {r1, r0},
         .channel = b.new_channel(),
         .in_place = true});
  b.add({.name = "U",
         .lane = compute,
         .reads = {r1, r0, b.read(w, 1), b.read(v, 1)},
         .writes = {b.assign(w), b.assign(v), moment},
         .in_place = true});
  return planned(b.take());
}

// ---- ways to break them --------------------------------------------------------------------------------

void drop_waits(Program& p, const std::string& instruction, const std::string& awaited) {
  const auto removed = std::erase_if(instruction_named(p, instruction).waits, [&](const Wait& w) {
    return w.instruction == find_instruction(p, awaited);
  });
  ASSERT_GT(removed, 0u) << instruction << " does not wait for " << awaited;
}
Wait& wait_of(Program& p, const std::string& instruction, const std::string& awaited) {
  for (Wait& w : instruction_named(p, instruction).waits)
    if (w.instruction == find_instruction(p, awaited)) return w;
  throw Error(fmt::format("{} does not wait for {}", instruction, awaited));
}
// Replaces a wait by a wait for another instruction, in the same unit.
void redirect(Program& p, const std::string& instruction, const std::string& awaited,
              const std::string& instead) {
  wait_of(p, instruction, awaited).instruction = find_instruction(p, instead);
}
void move_onto(Program& p, const std::string& block, const std::string& onto) {
  block_named(p, block).offsets = block_named(p, onto).offsets;
}

std::vector<Fault> waits_of_a_pipeline() {
  return {
      {"MissingDataWait",
       dualpipe3(),
       [](Program& p) { drop_waits(p, "B2", "F2"); },
       {"race", "'F2'", "'B2'"}},
      {"MissingReuseWait",
       dualpipe3(),
       [](Program& p) { drop_waits(p, "receive y0", "F1"); },
       {"'F1'", "'receive y0'"}},
      {"WaitOneUnitShort",
       dualpipe3(),
       [](Program& p) { ++wait_of(p, "F1", "receive y0").back; },
       {"'F1'", "'receive y0'"}},
      {"WaitForAnEarlierInstructionOfTheLane",
       dualpipe3(),
       [](Program& p) {
         redirect(p, "send y0", "F0", "U0");
         wait_of(p, "send y0", "U0").back = 1;
       },
       {"race", "'F0'", "'send y0'"}},
      {"UpdateBesideTheBackwardThatMakesItsGradient",
       dualpipe3(),
       [](Program& p) { drop_waits(p, "U0", "B0"); },
       {"race", "'B0'", "'U0'"}},
      {"StateAssignedUnderAReader",
       dualpipe3(),
       [](Program& p) { redirect(p, "B1", "U1", "F1"); },
       {"race", "'U1'", "'B1'"}},
      {"DrainCutShort", dualpipe3(), [](Program& p) { --p.max_lag; }, {"lag 4", "'B0'"}},
  };
}

std::vector<Fault> places_of_a_pipeline() {
  return {
      {"SlotCountReduced",
       dualpipe3(),
       [](Program& p) {
         MemoryBlock& a = block_named(p, "a0");
         a.offsets.pop_back();
         --a.slots;
       },
       {"'F0'", "'B0'"}},
      {"SlotsWrapEarly",
       dualpipe3(),
       [](Program& p) { block_named(p, "a0").offsets[4] = block_named(p, "a0").offsets[0]; },
       {"'F0'", "'B0'"}},
      {"WeightsOfTheWrongAge",
       dualpipe3(),
       [](Program& p) { --p.members[at(find_member(p, "w0@5"))].shift; },
       {"lost value", "'F0'", "'U0'"}},
      {"VersionsOfAStateReduced",
       planned(pipedream(equal_stages(3))),
       [](Program& p) {
         MemoryBlock& w = block_named(p, "w0");
         w.offsets.pop_back();
         --w.slots;
       },
       {"lost value", "'B0'", "'U0'"}},
      {"VersionsOfAStateAtOneAddress",
       planned(pipedream(equal_stages(3))),
       [](Program& p) { block_named(p, "w0").offsets[2] = block_named(p, "w0").offsets[1]; },
       {"lost value", "'U0'"}},
      {"BlocksOfUnequalSlotCounts",
       dualpipe3(),
       [](Program& p) { block_named(p, "y0").offsets[0] = block_named(p, "a0").offsets[1]; },
       {"race", "slots", "'F0'", "'a0'", "'y0'"}},
      {"BlockMovedOntoALiveOne",
       planned(gpipe(equal_stages(1, {}, 3))),
       [](Program& p) { move_onto(p, "a0/1", "a0/0"); },
       {"lost value", "'B0/0'", "'F0/1'"}},
      {"StateOnAnotherState",
       planned(spectrain(equal_stages(2))),
       [](Program& p) { move_onto(p, "v0", "w0"); },
       {"lost value", "'v0", "'w0@", "'PF0'"}},
      {"PredictionIntoScratchThatIsRead",
       planned(spectrain(equal_stages(3))),
       [](Program& p) { move_onto(p, "wb1", "wf1"); },
       {"'PB1'", "F1'"}},
  };
}

std::vector<Fault> races_of_swaps() {
  return {
      {"SwapSourceFreedEarly", swapping(), [](Program& p) { move_onto(p, "x", "c"); }, {"'out c'", "'X'"}},
      {"CopyOutBeforeTheValueIsMade",
       swapping(),
       [](Program& p) { drop_waits(p, "out a", "F"); },
       {"race", "'F'", "'out a'"}},
      {"CopyInIntoALiveBlock", swapping(), [](Program& p) { move_onto(p, "a'", "y"); }, {"'Y'", "'in a'"}},
      {"CopyInBeforeCopyOut",
       swapping(),
       [](Program& p) { drop_waits(p, "in a", "out a"); },
       {"race", "'out a'", "'in a'"}},
      {"FetchedValueUsedEarly",
       swapping(),
       [](Program& p) { redirect(p, "B", "in c", "in a"); },
       {"race", "'in c'", "'B'"}},
      {"TwoParkedValuesAtOneHostAddress",
       swapping(),
       [](Program& p) { move_onto(p, "hc", "ha"); },
       {"'out c'", "'in a'"}},
      {"TwoOutputsOfOneInstructionAtOneAddress",
       swapping(),
       [](Program& p) { move_onto(p, "c", "a"); },
       {"'F'"}},
      {"BlockBeyondTheArena",
       swapping(),
       [](Program& p) { block_named(p, "y").offsets[0] = p.memory[0].work; },
       {"'y'", "outside"}},
      {"HostBlockBeyondTheArena",
       swapping(),
       [](Program& p) { p.memory[0].host -= 64; },
       {"'h", "outside", "host"}},
      {"BlockOffItsAlignment",
       swapping(),
       [](Program& p) { block_named(p, "loss").offsets[0] = 8; },
       {"'loss'", "aligned"}},
      {"WaitForTheWrongCopy",
       swapping(),
       [](Program& p) { redirect(p, "in c", "out c", "out a"); },
       {"race", "'out c'", "'in c'"}},
  };
}

std::vector<Fault> races_of_a_reduction() {
  return {
      {"InPlaceUnderAReader",
       reducing(),
       [](Program& p) { drop_waits(p, "relu", "monitor"); },
       {"race", "'monitor'", "'relu'"}},
      {"InPlaceByAnInstructionThatMayNot",
       reducing(),
       [](Program& p) { instruction_named(p, "relu").in_place = false; },
       {"race", "'relu'", "in place"}},
      {"InPlaceNextToItsInput",
       reducing(),
       [](Program& p) {
         Member& y = p.members[at(find_member(p, "y"))];
         y.offset = 8;
         y.bytes -= 8;
       },
       {"'relu'"}},
      {"OutputOverAnInputOfAnotherBlock",
       reducing(),
       [](Program& p) { move_onto(p, "moment", "group"); },
       {"race", "'U' ", "'moment'", "in place"}},
      {"CollectiveBesideTheBackwardThatMakesItsGradient",
       reducing(),
       [](Program& p) { redirect(p, "R", "B0", "B1"); },
       {"race", "'B0'", "'R'"}},
      {"UpdateBesideTheCollective",
       reducing(),
       [](Program& p) { drop_waits(p, "U", "R"); },
       {"race", "'R'", "'U'"}},
      {"WorkspaceOfTwoLanesAtOneAddress",
       reducing(),
       [](Program& p) { move_onto(p, "ws1", "ws0"); },
       {"race", "'augment'", "'monitor'"}},
      {"UnusedStateOverwritten",
       reducing(),
       [](Program& p) { move_onto(p, "kept", "w"); },
       {"lost value", "'kept'", "'w@1'", "'F'"}},
      {"UnusedStateOverwrittenByOneThatNobodyReads",
       reducing(),
       [](Program& p) { move_onto(p, "running", "kept"); },
       {"lost value", "after the run", "'kept'", "'monitor'"}},
  };
}

class PlantedFault : public ::testing::TestWithParam<Fault> {};
INSTANTIATE_TEST_SUITE_P(PipelineWaits, PlantedFault, ::testing::ValuesIn(waits_of_a_pipeline()),
                         [](const auto& i) { return i.param.name; });
INSTANTIATE_TEST_SUITE_P(PipelinePlaces, PlantedFault, ::testing::ValuesIn(places_of_a_pipeline()),
                         [](const auto& i) { return i.param.name; });
INSTANTIATE_TEST_SUITE_P(Swaps, PlantedFault, ::testing::ValuesIn(races_of_swaps()),
                         [](const auto& i) { return i.param.name; });
INSTANTIATE_TEST_SUITE_P(Reduction, PlantedFault, ::testing::ValuesIn(races_of_a_reduction()),
                         [](const auto& i) { return i.param.name; });

TEST_P(PlantedFault, IsRefusedAndNamed) {
  Program p = GetParam().program;
  ASSERT_EQ(refusal(p), "");
  GetParam().plant(p);
  const std::string why = refusal(p);
  for (const std::string& text : GetParam().mentions)
    EXPECT_NE(why.find(text), std::string::npos) << text << " is not in: " << why;
}

// ---- deadlocks -----------------------------------------------------------------------------------------

// Two stages that exchange two values each way.
Program exchanging() {
  ProgramBuilder b(2);
  for (const char* name : {"a", "b"}) {
    const MemberId sent = b.value(fmt::format("{} of 0", name), 0),
                   received = b.value(fmt::format("{} of 1", name), 1);
    const MemberId back = b.value(fmt::format("{} back of 1", name), 1),
                   returned = b.value(fmt::format("{} back of 0", name), 0);
    b.add({.name = fmt::format("make {}", name), .lane = b.lane(0), .writes = {sent}});
    b.transfer(name, sent, received, 0, 1);
    b.add({.name = fmt::format("use {}", name), .lane = b.lane(1), .reads = {received}, .writes = {back}});
    b.transfer(fmt::format("{} back", name), back, returned, 0, 1);
  }
  for (int device : {0, 1}) b.add({.name = fmt::format("finish {}", device), .lane = b.lane(device)});
  return planned(b.take());
}

// Two stages that send to each other; receives are listed first.
Program crossing() {
  ProgramBuilder b(2);
  const std::int64_t channels[] = {b.new_channel(), b.new_channel()};
  MemberId mine[2];
  for (int k : {0, 1}) {
    mine[k] = b.value(fmt::format("value {}", k), k);
    b.add({.name = fmt::format("make {}", k), .lane = b.lane(k), .writes = {mine[k]}});
  }
  for (int k : {0, 1})
    b.add({.name = fmt::format("receive {}", k),
           .lane = b.lane(k, LaneKind::receive, 1 - k),
           .writes = {b.value(fmt::format("received {}", k), k)},
           .channel = channels[1 - k]});
  for (int k : {0, 1})
    b.add({.name = fmt::format("send {}", k),
           .lane = b.lane(k, LaneKind::send, 1 - k),
           .reads = {mine[k]},
           .channel = channels[k]});
  return planned(b.take());
}

void swap_channels(Program& p, const std::string& one, const std::string& other) {
  std::swap(instruction_named(p, one).channel, instruction_named(p, other).channel);
}

std::vector<Fault> wrong_transfers() {
  return {
      {"OppositeOrderOfTransfers",
       exchanging(),
       [](Program& p) { swap_channels(p, "receive a", "receive b"); },
       {"deadlock", "'send a'", "'receive a'"}},
      {"MissingEnd",
       exchanging(),
       [](Program& p) { instruction_named(p, "receive b").channel = -1; },
       {"missing end", "'receive b'"}},
      {"TransferWithItself",
       exchanging(),
       [](Program& p) {
         instruction_named(p, "receive b").channel = 99, instruction_named(p, "send b").channel = 98;
       },
       {"missing end", "b'"}},
      {"EndsOfDifferentLags",
       exchanging(),
       [](Program& p) {
         for (const char* instruction : {"receive b", "use b", "send b back", "receive b back"})
           ++instruction_named(p, instruction).lag;
         p.max_lag = 1;
       },
       {"'send b'", "'receive b'", "lag"}},
      {"EndsOfDifferentSizes",
       exchanging(),
       [](Program& p) { p.members[at(find_member(p, "a of 1"))].bytes = 32; },
       {"'send a' sends 64", "'receive a' receives 32"}},
      {"EndsOfDifferentLinks",
       planned(gpipe(equal_stages(3))),
       [](Program& p) { swap_channels(p, "receive y0", "receive y1"); },
       {"'send y0'", "'receive y1'", "link"}},
      {"ValueOfAnotherDevice",
       exchanging(),
       [](Program& p) { instruction_named(p, "use a").reads[0] = find_member(p, "a of 0"); },
       {"'use a'", "'a of 0'", "transfer"}},
  };
}

std::vector<Fault> wrong_waits() {
  return {
      {"CrossedWaits",
       crossing(),
       [](Program& p) {
         instruction_named(p, "send 0").waits.push_back({find_instruction(p, "receive 0"), 0});
         instruction_named(p, "send 1").waits.push_back({find_instruction(p, "receive 1"), 0});
       },
       {"deadlock", "'send 0' of unit 0 waits for 'receive 0'", "'send 1' of unit 0 waits for 'receive 1'"}},
      {"BarriersInDifferentOrder",
       planned([] {
         Pipeline p = equal_stages(2);
         p.barriers = true;
         return pipedream(p);
       }()),
       [](Program& p) { swap_channels(p, "barrier 0 1", "barrier 1 1"); },
       {"deadlock", "'barrier 0 0'", "'barrier 0 1'"}},
      {"WaitForALaterInstruction",
       swapping(),
       [](Program& p) {
         instruction_named(p, "X").waits.push_back({find_instruction(p, "in a"), 0});
       },
       {"cycle", "'X'", "'in a'"}},
      {"WaitForItself",
       swapping(),
       [](Program& p) {
         instruction_named(p, "X").waits.push_back({find_instruction(p, "X"), 0});
       },
       {"cycle", "'X'", "its own place"}},
      {"WaitAcrossDevices",
       exchanging(),
       [](Program& p) {
         instruction_named(p, "use a").waits.push_back({find_instruction(p, "make a"), 0});
       },
       {"'use a'", "'make a'", "device"}},
  };
}

INSTANTIATE_TEST_SUITE_P(Transfers, PlantedFault, ::testing::ValuesIn(wrong_transfers()),
                         [](const auto& i) { return i.param.name; });
INSTANTIATE_TEST_SUITE_P(Waits, PlantedFault, ::testing::ValuesIn(wrong_waits()),
                         [](const auto& i) { return i.param.name; });

// ---- waits ---------------------------------------------------------------------------------------------

// Without any one of its waits a Program has a race: none is superfluous.
void expect_every_wait_needed(const Program& p) {
  for (std::size_t s = 0; s < p.instructions.size(); ++s)
    for (std::size_t w = 0; w < p.instructions[s].waits.size(); ++w) {
      Program without = p;
      auto& waits = without.instructions[s].waits;
      const Wait dropped = waits[w];
      waits.erase(waits.begin() + static_cast<std::ptrdiff_t>(w));
      EXPECT_THROW(verify_memory(without), Error)
          << p.instructions[s].name << " waits for " << p.instructions[at(dropped.instruction)].name << " of "
          << dropped.back << " units back";
    }
}

TEST(Waits, AreAllNeeded) {
  expect_every_wait_needed(dualpipe3());
  for (const auto schedule : {gpipe, one_f_one_b, spectrain, pipedream, vertical_sync, double_buffered,
                              overlapped_all_reduce, mu_two}) {
    Pipeline p = equal_stages(3);
    if (schedule == gpipe || schedule == one_f_one_b || schedule == double_buffered) p.microbatches = 4;
    expect_every_wait_needed(planned(schedule(p)));
  }
  expect_every_wait_needed(swapping());
  expect_every_wait_needed(reducing());
}

TEST(Waits, GivenInAdvanceAreKeptUnlessOthersImplyThem) {
  ProgramBuilder b;
  const LaneId one = b.lane(0), two = b.lane(0, LaneKind::compute, 1);
  const MemberId x = b.value("x", 0);
  const InstructionId a = b.add({.name = "A", .lane = one, .writes = {x}});
  const InstructionId c = b.add({.name = "C", .lane = one});
  b.add({.name = "D", .lane = two, .waits = {{c, 0}, {a, 0}}, .reads = {x}});
  const Program p = planned(b.take());
  EXPECT_EQ(p.instructions[2].waits, (std::vector<Wait>{{c, 0}})) << "C comes after A on its lane";
}

// A Program that only reads the state, such as an evaluation, finds it where the last run left it.
TEST(Verifier, StateThatIsNeverAssignedKeepsItsContents) {
  ProgramBuilder b;
  const BlockId w = b.state("w", 0);
  b.add({.name = "F", .lane = b.lane(0), .reads = {b.read(w, 1)}, .writes = {b.value("loss", 0)}});
  const Program p = planned(b.take());
  EXPECT_EQ(refusal(p), "");
  EXPECT_EQ(p.blocks[at(w)].slots, 1);
}

}  // namespace
}  // namespace tandem::testing
