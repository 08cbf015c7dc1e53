// Programs as JSON: schedules written by hand, and Programs that are written and read back.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <tandem/core/base/error.h>
#include <tandem/core/schedule/program_json.h>
#include <tandem/core/schedule/verify.h>
#include <tandem/memory/placement.h>

#include "expect_error.h"
#include "program_builder.h"
#include "random_programs.h"
#include "schedules.h"
#include "seed.h"

namespace tandem::testing {
using namespace engine;
namespace {

void expect_refused(const std::string& text, const std::vector<std::string>& words) {
  expect_error([&] { program_from_json(text); }, words);
}
std::string one_lane(const std::string& instructions, const std::string& rest = "") {
  return R"({"lanes": [{}], )" + rest + R"("instructions": [)" + instructions + "]}";
}

TEST(ProgramJson, ReadsAScheduleWrittenByHand) {
  const Program p = program_from_json(R"({
    "devices": 2, "corun": 0.75, "microbatches": 3,
    "lanes": [{"device": 0}, {"device": 0, "kind": "compute", "index": 1}, {"device": 0, "kind": "send", "index": 1},
              {"device": 1, "kind": "receive", "index": 0}, {"device": 1}],
    "values": {"a": 1024, "g1": {"bytes": 32, "block": "group", "offset": 64}},
    "blocks": {"group": {"bytes": 256, "arena": "host"}},
    "states": {"z": {"bytes": 64}, "w": {"bytes": 4096, "trained": true}},
    "instructions": [
      {"name": "F", "lane": 0, "lag": 1, "seconds": 1.5, "reads": ["w@2"], "writes": ["a", "g1"]},
      {"name": "B", "lane": 1, "lag": 2, "phase": "backward", "reads": ["a", "w@2", "z@1"], "writes": ["g0"],
       "own_rate": 0.5, "others_rate": 0.25},
      {"name": "send", "lane": 2, "lag": 2, "reads": ["g0"], "channel": "c", "threads": 3},
      {"name": "receive", "lane": 3, "lag": 2, "writes": ["r"], "channel": "c"},
      {"name": "U", "lane": 0, "lag": 2, "phase": "update", "reads": ["g0", "w@1"], "writes": ["w"], "in_place": true,
       "after": [{"step": "send", "back": 1}]}
    ]})");
  EXPECT_EQ(p.devices, 2);
  EXPECT_EQ(p.corun, (std::vector<double>{0.75, 0.75}));
  EXPECT_EQ(p.microbatches, 3);
  EXPECT_EQ(p.max_lag, 2);
  EXPECT_EQ(p.states[0].path, "z") << "states keep the order in which they are written";
  EXPECT_TRUE(p.states[1].trained);
  EXPECT_EQ(p.blocks[at(find_block(p, "a"))].bytes, 1024);
  const MemoryBlock& group = p.blocks[at(find_block(p, "group"))];
  EXPECT_EQ(group.bytes, 256);
  EXPECT_EQ(group.arena, Arena::host);
  EXPECT_EQ(p.members[at(find_member(p, "g1"))].offset, 64);
  EXPECT_EQ(p.members[at(find_member(p, "w@2"))].shift, -1);
  EXPECT_EQ(p.members[at(find_member(p, "w'"))].shift, 1);
  EXPECT_EQ(p.blocks[at(find_block(p, "r"))].device, 1);
  const Instruction& b = p.instructions[1];
  EXPECT_EQ(b.lag, 2);
  EXPECT_EQ(b.tag.phase, Phase::backward);
  EXPECT_EQ(b.cost.own_rate, 0.5);
  EXPECT_EQ(b.cost.others_rate, 0.25);
  EXPECT_EQ(p.instructions[2].channel, p.instructions[3].channel);
  EXPECT_EQ(3, p.instructions[2].tag.threads);
  EXPECT_EQ(p.instructions[4].waits, (std::vector<Wait>{{2, 1}}));
  EXPECT_NO_THROW(verify(planned(p)));
}

TEST(ProgramJson, RefusesCyclesAndMissingValues) {
  expect_refused(
      one_lane(
          R"({"name": "A", "reads": ["b"], "writes": ["a"]}, {"name": "B", "reads": ["a"], "writes": ["b"]})"),
      {"cycle", "'A'", "'B'", "'b'"});
  expect_refused(
      one_lane(R"({"name": "A", "lag": 1, "writes": ["a"]}, {"name": "B", "lag": 0, "reads": ["a"]})"),
      {"cycle", "'A' (lag 1)", "'B' (lag 0)"});
  expect_refused(one_lane(R"({"name": "A", "reads": ["a"], "writes": ["a"]})"), {"cycle", "'A'"});
  expect_refused(one_lane(R"({"name": "A", "after": [{"step": "B"}]}, {"name": "B"})"),
                 {"cycle", "'A'", "'B'"});
  expect_refused(one_lane(R"({"name": "A", "after": [{"step": "A", "instruction": "A"}]})"),
                 {"'instruction'", "older name 'step'", "not both"});
  expect_refused(one_lane(R"({"name": "A", "after": [{"step": "A"}]})"), {"cycle", "'A'", "its own place"});
  expect_refused(one_lane(R"({"name": "A", "reads": ["x"]})"), {"missing value", "'A'", "'x'"});
  expect_refused(
      one_lane(R"({"name": "U", "reads": ["w@1"], "writes": ["w"]}, {"name": "G", "reads": ["w@0"]})",
               R"("states": {"w": {}},)"),
      {"w@0", "the age must be from 1"});
  expect_refused(one_lane(R"({"name": "F", "reads": ["w@1"]}, {"name": "U", "lag": 1, "writes": ["w"]})",
                          R"("states": {"w": {}},)"),
                 {"cycle", "'F'", "'U'"});
}

TEST(ProgramJson, RefusesInvalidValuesAndNamesTheirPlace) {
  expect_refused(
      "{", {"Program: not valid JSON at line 1, column 2: ", "unexpected end of input", "string literal"});
  expect_refused("{\n \"lanes\": [}", {"not valid JSON at line 2, column 12: ", "unexpected '}'"});
  expect_refused("[1e999]", {"not valid JSON at line 1, column 6: number overflow parsing '1e999'"});
  expect_refused(R"({"lanes": []})", {"instructions"});
  expect_refused(R"({"lanes": [{"kind": "gpu"}], "instructions": []})", {"'gpu'", "compute", "copy-in"});
  expect_refused(one_lane(R"({"name": "A", "lane": 1})"), {"'A'", "lane 1"});
  expect_refused(one_lane(R"({"name": "A", "second": 1})"), {"'A'", "'second'"});
  expect_refused(one_lane(R"({"name": "A", "seconds": -1})"), {"'A'", "seconds"});
  expect_refused(one_lane(R"({"name": "A", "lag": -1})"), {"'A'", "lag -1"});
  expect_refused(one_lane(R"({"name": "A", "phase": "sideways"})"), {"'sideways'"});
  expect_refused(one_lane(R"({"name": "A"}, {"name": "A"})"), {"two instructions", "'A'"});
  expect_refused(one_lane(R"({"name": "A", "after": [{"step": "Z"}]})"), {"'A'", "Z"});
  expect_refused(one_lane(R"({"name": "A", "writes": ["a"]}, {"name": "B", "writes": ["a"]})"),
                 {"made twice", "'A'", "'B'"});
  expect_refused(one_lane(R"({"name": "A", "writes": ["w"]}, {"name": "B", "writes": ["w"]})",
                          R"("states": {"w": {}},)"),
                 {"'A'", "'B'", "'w"});
  expect_refused(one_lane(R"({"name": "A", "reads": ["w"]})", R"("states": {"w": {}},)"),
                 {"without an age", "w@1"});
  expect_refused(one_lane(R"({"name": "A", "reads": ["v@1"]})", R"("states": {"w": {}},)"),
                 {"unknown state 'v'"});
  expect_refused(one_lane(R"({"name": "A", "writes": ["a"]})", R"("values": {"a": {"bites": 1}},)"),
                 {"'a'", "'bites'"});
  expect_refused(one_lane(R"({"name": "A", "writes": ["a"]})", R"("blocks": {"a": {"arena": "moon"}},)"),
                 {"'moon'"});
  expect_refused(
      R"({"lanes": [{"kind": "send", "index": 1}], "instructions": [{"name": "S", "channel": "c"}]})",
      {"missing end", "'S'"});
}

TEST(ProgramJson, RefusesValuesThatItWouldConvertOrDrop) {
  expect_refused(one_lane(R"({"name": "A", "lag": 1.5})"),
                 {"instruction 'A'", R"("lag" is 1.5; an integer)"});
  expect_refused(one_lane(R"({"name": "A", "lag": true})"), {"instruction 'A'", "\"lag\" is true"});
  expect_refused(one_lane(R"({"name": "A", "lag": 4294967296})"), {"\"lag\" is 4294967296"});
  expect_refused(one_lane(R"({"name": "A", "lag": 18446744073709551615})"),
                 {"\"lag\" is 18446744073709551615"});
  expect_refused(one_lane(R"({"name": "A", "seconds": "1"})"),
                 {"instruction 'A'", "\"seconds\" is \"1\"; a number"});
  expect_refused(one_lane(R"({"name": "A", "in_place": 1})"), {"\"in_place\" is 1; true or false"});
  expect_refused(one_lane(R"({"name": "A", "reads": "a"})"), {"\"reads\" is \"a\"; an array"});
  expect_refused(one_lane(R"({"name": "A", "writes": [1]})"), {"\"writes\": [0] is 1; a text"});
  expect_refused(one_lane(R"({"lag": 1})"), {R"("instructions": [0]: "name" is missing)"});
  expect_refused(R"({"lanes": {"a": {}}, "instructions": []})", {"\"lanes\" is {\"a\":{}}; an array"});
  expect_refused(R"([])", {"the top level is []; an object"});
}

TEST(ProgramJson, RefusesAKeyGivenTwice) {
  expect_refused(R"({"lanes": [{}], "lanes": [{}, {}], "instructions": []})", {"\"lanes\" is given twice"});
  expect_refused(one_lane(R"({"name": "A", "lag": 1, "lag": 2})"), {"\"lag\" is given twice"});
  expect_refused(one_lane(R"({"name": "A"})", R"("states": {"w": {}, "w": {}},)"), {"\"w\" is given twice"});
  EXPECT_NO_THROW(program_from_json(one_lane(R"({"name": "A", "lag": 1}, {"name": "B", "lag": 1})")))
      << "the same key may be in two objects";
}

TEST(ProgramJson, RefusesNumbersOutOfRange) {
  const auto values = [](const std::string& a, const std::string& b) {
    return one_lane(R"({"name": "A", "writes": ["a", "b"]})",
                    "\"values\": {\"a\": " + a + ", \"b\": " + b + "},");
  };
  expect_refused(values("4611686018427387904", "1"), {"value 'a'", "0 to 281474976710656"});
  expect_refused(values("-1", "1"), {"value 'a' is -1"});
  expect_refused(values(R"({"offset": 9223372036854775807})", "1"), {"value 'a': \"offset\""});
  expect_refused(values("281474976710656", "1"), {"'b'", "all blocks together may have 281474976710656"});
  std::string lanes;
  for (int i = 0; i < 1001; ++i) lanes += fmt::format(R"({}{{"index": {}}})", i == 0 ? "" : ", ", i);
  expect_refused(R"({"lanes": [)" + lanes + R"(], "instructions": []})", {"1001 lanes", "at most 1000"});
  const std::string state = R"("states": {"w": {}},)";
  for (const char* age : {"10001", "1000000000", "99999999999", "1x", ""})
    expect_refused(
        one_lane(R"({"name": "A", "reads": ["w@)" + std::string(age) + R"("], "writes": ["w"]})", state),
        {"the age must be from 1 to 10000"});
  expect_refused(one_lane(R"({"name": "A"}, {"name": "B", "after": [{"step": "A", "back": 2000000000}]})"),
                 {"'B'", "2000000000", "0 to 10000"});
  for (const char* top :
       {R"("devices": 1000000000,)", R"("devices": 0,)", R"("replicas": 0,)", R"("microbatches": -3,)"})
    expect_refused(one_lane(R"({"name": "A"})", top), {"devices must be 1 to 10000, the others at least 1"});
  for (const char* lane : {R"({"index": -1})", R"({"device": 1})", R"({"device": -1})"})
    expect_refused(R"({"lanes": [)" + std::string(lane) + R"(], "instructions": []})",
                   {"a compute lane", "the index must be at least 0, the device 0 to 0"});
  for (const char* rho : {"0", "-1", "1e300"})
    expect_refused(one_lane(R"({"name": "A"})", "\"corun\": " + std::string(rho) + ","),
                   {"\"corun\" is ", "1e-09 to 1e+09"});
  expect_refused(one_lane(R"({"name": "A", "others_rate": 1e10})"),
                 {"\"others_rate\" is ", "1e-09 to 1e+09"});
}

// The largest accepted numbers overflow nowhere.
TEST(ProgramJson, PlansTheLargestNumbersItAccepts) {
  const Program p = planned(program_from_json(
      one_lane(R"({"name": "A", "writes": ["a"]}, {"name": "B", "lag": 9999, "reads": ["a"]})",
               R"("values": {"a": 281474976710656},)")));
  EXPECT_EQ(10'000, p.blocks[0].slots);
  EXPECT_EQ(10'000 * (std::int64_t{1} << 48), p.memory[0].work);
  EXPECT_EQ(p.memory[0].work, p.memory[0].live_peak);
  EXPECT_NO_THROW(verify(p));
}

// After a round trip a Program is the same: the same plan follows from it.
void expect_round_trip(const Program& schedule) {
  const Program plan = planned(schedule);
  const std::string text = to_json(plan);
  EXPECT_TRUE(to_json(planned(program_from_json(text))) == text) << "read back from " << text;
  EXPECT_TRUE(to_json(planned(program_from_json(to_json(schedule)))) == text)
      << "read back from " << to_json(schedule);
  const std::string written = to_json(program_from_json(to_json(schedule)));
  EXPECT_TRUE(to_json(program_from_json(written)) == written);
}

TEST(ProgramJson, RoundTripGivesTheSameProgram) {
  for (int n = 1; n <= 3; ++n)
    for (bool barriers : {false, true}) {
      Pipeline p = equal_stages(n, {.forward = 1.25, .backward = 0.1}, 4);
      p.hop = 0.3;
      p.corun = 0.6;
      p.barriers = barriers;
      for (const auto schedule : {gpipe, one_f_one_b, double_buffered}) expect_round_trip(schedule(p));
      p.microbatches = 1;
      for (const auto schedule :
           {accumulation, dualpipe, spectrain, vertical_sync, pipedream, overlapped_all_reduce, mu_two})
        expect_round_trip(schedule(p));
    }
}

TEST(ProgramJson, RoundTripOfRandomPrograms) {
  auto rng = generator("json");
  for (int i = 0; i < 200; ++i) {
    SCOPED_TRACE(i);
    expect_round_trip(random_schedule(rng));
  }
}

TEST(ProgramJson, AValueAndAnInstructionMayShareAName) {
  ProgramBuilder b;
  const MemberId x = b.value("x", 0, 64), other = b.value("x", 0, 128);
  b.add({.name = "relu", .lane = b.lane(0), .writes = {x}});
  b.add({.name = "relu", .lane = b.lane(0), .reads = {x}, .writes = {other}});
  expect_round_trip(b.take());
}

TEST(ProgramJson, RefusesABlockSmallerThanItsValues) {
  const std::string text = R"({"lanes": [{"device": 0}], "values": {"v": {"bytes": 100, "block": "b"}},
    "blocks": {"b": {"bytes": 64}}, "instructions": [{"name": "s", "lane": 0, "writes": ["v"]}]})";
  expect_refused(text, {"value 'v' ends at byte 100 of block 'b', which has 64"});
}

}  // namespace
}  // namespace tandem::testing
