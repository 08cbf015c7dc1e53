// Pipeline schedules as data: what the named functions make, what is refused, and files.
#include <filesystem>
#include <fstream>
#include <functional>

#include <gtest/gtest.h>

#include <tandem/core/base/error.h>
#include <tandem/pipeline/schedule_file.h>
#include <tandem/pipeline/schedules.h>
#include <tandem/plan/strategy.h>

#include "expect_error.h"
#include "temporary_directory.h"

namespace tandem::testing {
using namespace engine;
namespace {

// Every shape that a schedule takes, of those with few stages and micro-batches.
void for_each_schedule(const std::function<void(const PipelineSchedule&, const PipelineShape&)>& f) {
  int made = 0;
  for (const ScheduleFunction& schedule : pipeline_schedules())
    for (int stages = 1; stages <= 8; ++stages)
      for (int microbatches : {1, 2, 3, 4, 8, 16})
        for (int chunks : {1, 2, 4})
          for (bool lockstep : {false, true}) {
            const PipelineShape shape{
                .stages = stages, .microbatches = microbatches, .chunks = chunks, .lockstep = lockstep};
            PipelineSchedule made_for;
            try {
              made_for = make_schedule(schedule.name, shape);
            } catch (const Error&) {
              continue;
            }
            SCOPED_TRACE(::testing::Message() << schedule.name << " stages " << stages << " microbatches "
                                              << microbatches << " chunks " << chunks);
            f(made_for, shape);
            ++made;
          }
  EXPECT_GT(made, 500);
}

TEST(PipelineSchedules, OfAllNamesAndShapesArePossible) {
  for_each_schedule([](const PipelineSchedule& s, const PipelineShape& shape) {
    EXPECT_NO_THROW(check(s));
    EXPECT_EQ(shape.stages, std::ssize(s.stages));
    EXPECT_EQ(shape.microbatches, s.microbatches());
    EXPECT_EQ(shape.devices(), s.devices());
  });
}

TEST(PipelineSchedules, AreReadAsTheyWereWritten) {
  const TemporaryDirectory directory;
  const std::string file = directory.file("schedule.json");
  int read = 0;
  for_each_schedule([&](const PipelineSchedule& s, const PipelineShape& shape) {
    if (shape.stages > 3 || shape.microbatches > 4) return;
    std::ofstream(file) << to_json(s);
    EXPECT_EQ(s, read_schedule(file));
    ++read;
  });
  EXPECT_GT(read, 50);
}

// The most micro-batches that wait on a device for their backward, within a unit.
int in_flight(const PipelineSchedule& s, int device) {
  int now = 0, most = 0;
  for (const Task& t : s.tasks) {
    if (s.stages[static_cast<std::size_t>(t.stage)].device != device) continue;
    if (t.phase == Phase::forward) most = std::max(most, ++now);
    if (t.phase == Phase::backward) --now;
  }
  return most;
}

// GPipe keeps all micro-batches, 1F1B N − k (PipeDream-Flush), interleaved 2(N − 1 − d) + (v − 1)N + 1 chunks
// (Narayanan et al., 2021).
TEST(PipelineSchedules, KeepAsManyMicrobatchesAsTheirPapersSay) {
  for (int n : {1, 2, 3, 4})
    for (int d = 0; d < n; ++d) {
      const int m = 4 * n;
      EXPECT_EQ(1, in_flight(make_schedule("plain", {n, m}), d));
      EXPECT_EQ(m, in_flight(make_schedule("gpipe", {n, m}), d));
      EXPECT_EQ(n - d, in_flight(make_schedule("1f1b", {n, m}), d));
      for (int v : {2, 3})
        EXPECT_EQ(2 * (n - 1 - d) + (v - 1) * n + 1,
                  in_flight(make_schedule("interleaved", {n * v, m, v}), d));
    }
}

// The order of device 1 of 4 with two chunks and 8 micro-batches, written out by hand after Megatron-LM's.
TEST(PipelineSchedules, InterleavedHasMegatronsOrder) {
  const PipelineSchedule s = make_schedule("interleaved", {8, 8, 2});
  std::string order;
  for (const Task& t : s.tasks)
    if (s.stages[static_cast<std::size_t>(t.stage)].device == 1 && t.phase != Phase::update)
      order += (t.phase == Phase::forward ? " F" : " B") + std::to_string(t.stage / 4) +
               std::to_string(t.microbatch);
  EXPECT_EQ(order,
            " F00 F01 F02 F03 F10 F11 F12 F13 F04 B10 F05 B11 F06 B12 F07 B13 F14 B00 F15 B01 F16 B02 F17 B03"
            " B14 B15 B16 B17 B04 B05 B06 B07");
}

TEST(PipelineSchedules, RefuseShapesThatTheyCannotTake) {
  expect_error([] { make_schedule("fifo", {}); }, {"'fifo'", "plain", "pipedream-2bw", "dualpipe-vs"});
  expect_error([] { make_schedule("1f1b", {.stages = 0}); }, {"0 stages"});
  expect_error([] { make_schedule("1f1b", {.microbatches = 0}); }, {"0 micro-batches"});
  expect_error([] { make_schedule("1f1b", {.stages = 4, .chunks = 2}); }, {"'1f1b'", "interleaved"});
  expect_error([] { make_schedule("interleaved", {.stages = 3, .chunks = 2}); },
               {"3 stages", "multiple of 2"});
  expect_error([] { make_schedule("interleaved", {.stages = 4, .microbatches = 3, .chunks = 2}); },
               {"multiple of 2", "not 3"});
  expect_error([] { make_schedule("pipedream-2bw", {.stages = 3, .microbatches = 2}); },
               {"3 or more", "are 2"});
}

// Forward alone needs no micro-batches, so no schedule refuses it; stages lie where they lie in training.
TEST(PipelineSchedules, AllowForwardAloneUnderEveryName) {
  for (const ScheduleFunction& schedule : pipeline_schedules()) {
    SCOPED_TRACE(schedule.name);
    Strategy s;
    s.schedule = schedule.name;
    s.stages = 4;
    s.chunks = schedule.takes_chunks ? 2 : 1;
    s.train = false;
    const PipelineSchedule alone = schedule_of(s);
    EXPECT_EQ(1, alone.microbatches());
    for (int k = 0; k < 4; ++k)
      EXPECT_EQ(s.device_of(k), alone.stages.at(static_cast<std::size_t>(k)).device);
    s.own_schedule = alone;
    s.chunks = 1;
    s.stages = 3;
    expect_error([&] { schedule_of(s); }, {"4 stages", "the strategy has 3"});
  }
  expect_error([] { schedule_of({.schedule = "fifo", .train = false}); }, {"'fifo'", "interleaved"});
  expect_error([] { schedule_of({.stages = 4, .chunks = 2, .schedule = "1f1b", .train = false}); },
               {"'1f1b'", "take chunks: interleaved"});
}

// What the table of schedules says of them is so.
TEST(PipelineSchedules, TakeWhatTheirColumnsSay) {
  for (const ScheduleFunction& schedule : pipeline_schedules()) {
    SCOPED_TRACE(schedule.name);
    const PipelineShape shape{.stages = 4, .microbatches = 4};
    const PipelineSchedule made = schedule.make(shape);
    EXPECT_EQ(schedule.overlaps_batches, made.overlaps_batches());
    EXPECT_EQ(schedule.takes_target,
              made != schedule.make({.stages = 4, .microbatches = 4, .target = SpecTrainTarget::serial}));
    EXPECT_EQ(schedule.takes_target, made.predicts_weights());
    const PipelineShape chunks{.stages = 4, .microbatches = 4, .chunks = 2};
    if (schedule.takes_chunks)
      EXPECT_EQ(2, make_schedule(schedule.name, chunks).devices());
    else
      expect_error([&] { make_schedule(schedule.name, chunks); }, {"take chunks: interleaved"});
  }
  EXPECT_EQ(std::vector<std::string>{"spectrain"}, schedule_names(&ScheduleFunction::takes_target));
}

// A strategy with a schedule of one's own has its numbers, and those of evaluation are one micro-batch's.
TEST(PipelineSchedules, OfOnesOwnSayTheStagesAndMicrobatches) {
  const PipelineSchedule own = make_schedule("interleaved", {.stages = 4, .microbatches = 6, .chunks = 2});
  Strategy s = with_schedule({.models = 3, .cuts = {"a", "b", "c"}}, own);
  EXPECT_EQ(4, s.stages);
  EXPECT_EQ(6, s.microbatches);
  EXPECT_EQ(3, s.models);
  EXPECT_EQ(2, s.devices());
  EXPECT_EQ(own, schedule_of(s));
  const Strategy alone = for_evaluation(s);
  EXPECT_EQ(1, alone.microbatches);
  EXPECT_EQ(one_by_one(own), schedule_of(alone));
  s.microbatches = 2;
  expect_error([&] { schedule_of(s); }, {"6 micro-batches", "the strategy has 4 and 2"});
}

TEST(PipelineSchedules, ThatAreImpossibleNameTheTask) {
  const PipelineSchedule good = make_schedule("dualpipe", {.stages = 2, .microbatches = 2});
  const auto refuse = [&](const std::function<void(PipelineSchedule&)>& change,
                          const std::vector<std::string>& words) {
    PipelineSchedule bad = good;
    change(bad);
    expect_error([&] { check(bad); }, words);
  };
  const auto at = [](PipelineSchedule& s, const Task& like) -> Task& {
    return *std::ranges::find_if(s.tasks, [&](const Task& t) {
      return t.phase == like.phase && t.stage == like.stage && t.microbatch == like.microbatch;
    });
  };
  refuse([](auto& s) { s.stages.clear(); }, {"without stages"});
  refuse([](auto& s) { s.tasks.pop_back(); }, {"no update of stage 1"});
  refuse([](auto& s) { s.tasks.push_back(s.tasks[0]); }, {"forward of micro-batch 0 on stage 0 twice"});
  refuse([](auto& s) { s.tasks[0].stage = 2; }, {"forward of micro-batch 0 on stage 2"});
  refuse([](auto& s) { s.tasks[0].lag = -1; }, {"forward of micro-batch 0 on stage 0"});
  refuse(
      [&](auto& s) {
        at(s, {Phase::forward, 1, 0}).lag = 0;
        std::rotate(s.tasks.begin(), s.tasks.begin() + 2, s.tasks.begin() + 3);
      },
      {"forward of micro-batch 0 on stage 1 (lag 0, number 0",
       "needs the forward of micro-batch 0 on stage 0"});
  refuse(
      [&](auto& s) {
        at(s, {Phase::backward, 0, 0}).lag = 0;
      },
      {"backward of micro-batch 0 on stage 0", "needs the backward of micro-batch 0 on stage 1"});
  refuse([&](auto& s) { at(s, {Phase::update, 0}).lag = 1; }, {"update of stage 0", "needs the backward"});
  refuse([](auto& s) { s.stages[0].weights.forward_age = 2; },
         {"forward of micro-batch 0 on stage 0", "age 2", "age 3"});
  refuse([](auto& s) { s.stages[0].weights.backward_age = 0; }, {"backward of micro-batch 0 on stage 0"});
  refuse([](auto& s) { s.stages[1].device = 2; }, {"2 devices", "0 to 1"});
  refuse([](auto& s) { s.tasks[0].lane = 5; }, {"uses lane 5", "lane 4"});
  refuse(
      [](auto& s) {
        s.tasks.push_back({Phase::barrier, 0, 0});
      },
      {"barrier after tick 0", "0 tasks on device 1"});
  refuse([](auto& s) { s.tasks.push_back({.phase = Phase::barrier, .lag = 3}); },
         {"barrier of stage 0", "a lag or a lane"});
  refuse([](auto& s) { s.tasks.push_back({.phase = Phase::barrier, .lane = 5}); },
         {"barrier of stage 0", "a lag or a lane"});
  refuse(
      [](auto& s) {
        s.tasks.push_back({Phase::backward, 0, 7});
      },
      {"backward of micro-batch 7 on stage 0", "the micro-batch 7 of 2"});
  refuse(
      [](auto& s) {
        s.tasks.push_back({Phase::update, 0, 1});
      },
      {"update of stage 0", "the micro-batch 1 of 1"});
}

// Every device meets the barriers in the same order, and no task needs one of a later tick.
TEST(PipelineSchedules, WithImpossibleBarriersNameTheTask) {
  PipelineSchedule swapped = make_schedule("pipedream", {.stages = 2, .lockstep = true});
  for (Task& t : swapped.tasks)
    if (t.phase == Phase::barrier && t.stage == 1) t.microbatch = 1 - t.microbatch;
  expect_error([&] { check(swapped); }, {"barrier of stage 1 after tick 0", "comes after that of tick 1"});

  PipelineSchedule circle = make_schedule("gpipe", {.stages = 2});
  const auto forward = std::ranges::find(circle.tasks, Task{Phase::forward, 1});
  circle.tasks.insert(forward + 1, {Phase::barrier, 1, 0});
  circle.tasks.insert(circle.tasks.begin(), {Phase::barrier, 0, 0});
  expect_error([&] { check(circle); },
               {"forward of micro-batch 0 on stage 1 (lag 0, number 2 in the list, tick 0)",
                "needs the forward of micro-batch 0 on stage 0 (lag 0, number 1 in the list, tick 1)"});
  std::erase_if(circle.tasks, [](const Task& t) { return t.phase == Phase::barrier; });
  EXPECT_NO_THROW(check(circle));
}

// The tick of an update is how many barriers its device met before, wherever other devices' stand in the
// list.
TEST(PipelineSchedules, UpdateTogetherInOneTick) {
  const auto with = [](const std::vector<Task>& rest) {
    PipelineSchedule s = make_schedule("gpipe", {.stages = 2});
    std::erase_if(s.tasks, [](const Task& t) { return t.phase == Phase::update; });
    s.tasks.insert(s.tasks.end(), rest.begin(), rest.end());
    return s;
  };
  const Task first{Phase::update, 0}, second{Phase::update, 1};
  const auto barrier = [](int stage, int tick) { return Task{Phase::barrier, stage, tick}; };
  EXPECT_TRUE(with({first, barrier(0, 0), second, barrier(1, 0)}).updates_together());
  EXPECT_TRUE(with({barrier(0, 0), barrier(1, 0), first, second}).updates_together());
  EXPECT_FALSE(with({barrier(0, 0), first, second, barrier(1, 0)}).updates_together());
  EXPECT_FALSE(make_schedule("dualpipe", {.stages = 2}).updates_together());
}

TEST(PipelineSchedules, OfAFileNameWhatIsWrong) {
  const TemporaryDirectory directory;
  const std::string file = directory.file("schedule.json");
  const auto refuse = [&](const std::string& text, const std::vector<std::string>& words) {
    std::ofstream(file) << text;
    SCOPED_TRACE(text);
    expect_error([&] { read_schedule(file); }, words);
  };
  expect_error([&] { read_schedule(directory.file("none.json")); }, {"schedule", "none.json"});
  refuse("{", {"schedule.json"});
  refuse("{}", {"schedule.json", "stages"});
  refuse(R"({"stages": [{"rank": 0}], "tasks": []})", {"schedule.json", "'rank'", "device"});
  refuse(R"({"stages": [{}], "tasks": [{"kind": "G", "stage": 0}]})",
         {"schedule.json", "\"tasks\": [0]", "\"G\"", "\"barrier\""});
  refuse(R"({"stages": [{}], "tasks": [{"kind": "F"}]})", {"stage"});
  refuse(R"({"stages": [{}], "tasks": [{"kind": "F", "stage": 0.5}]})", {"stage"});
  refuse(R"({"stages": [{}], "tasks": [{"kind": "F", "stage": 0}]})",
         {"schedule.json", "no update of stage 0"});
  std::ofstream(file) << R"({"stages": [{}], "tasks": [{"kind": "F", "stage": 0}, {"kind": "B", "stage": 0},
                             {"kind": "U", "stage": 0}]})";
  EXPECT_EQ(make_schedule("plain", {}), read_schedule(file));
}

}  // namespace
}  // namespace tandem::testing
