// train_cifar --parallel pipeline: schedules by name and from files.
#include <fmt/format.h>

#include <tandem/pipeline/schedule_file.h>
#include <tandem/pipeline/schedules.h>

#include "cli.h"

namespace tandem::testing {
namespace {

using nlohmann::json;

class CliPipelines : public Cli {
 protected:
  std::string job(const std::string& options) const {
    return kTrain + "--arch mlp-residual --batch-size 16 --synthetic-train 128 --steps 6 --threads 1 " +
           options;
  }
  // The losses of a run with these options.
  std::vector<json> losses(const std::string& options, const std::string& output) const {
    const Ended e = run(job(options + " --output " + file(output)));
    EXPECT_EQ(0, e.status) << e.err;
    std::vector<json> losses;
    for (const json& line : metrics(output)) losses.push_back(line.at("loss"));
    EXPECT_EQ(6u, losses.size());
    return losses;
  }
};

TEST_F(CliPipelines, SchedulesThatFlushHaveTheLossesOfOneDevice) {
  const auto one = losses("--microbatches 4", "one");
  EXPECT_EQ(one, losses("--microbatches 4 --stages 2 --schedule gpipe", "gpipe"));
  EXPECT_EQ(one, losses("--microbatches 4 --stages 4 --chunks 2 --schedule interleaved", "interleaved"));
  EXPECT_EQ(one, losses("--microbatches 4 --stages 2 --chunks 2 --schedule interleaved", "one-device"));
}

TEST_F(CliPipelines, AScheduleFromAFileTrainsLikeTheOneWithTheName) {
  for (const std::string name : {"1f1b", "pipedream-2bw", "dualpipe-vs"}) {
    const std::string schedule =
        write(name + ".json", engine::to_json(make_schedule(name, {.stages = 2, .microbatches = 2})));
    const std::string shape = "--parallel pipeline --stages 2 --microbatches 2 --schedule ";
    EXPECT_EQ(losses(shape + name, name),
              losses("--parallel pipeline --schedule " + schedule, name + "-file"));
    EXPECT_EQ(read(name + "/summary.json").at("test_accuracy"),
              read(name + "-file/summary.json").at("test_accuracy"));
  }
}

TEST_F(CliPipelines, WhatAScheduleCannotTakeIsRefused) {
  const std::string pipeline = "--parallel pipeline ";
  expect_refused(job(pipeline + "--schedule fifo"), {"--schedule", "'fifo'", "interleaved"});
  expect_refused(job(pipeline + "--schedule none.json"), {"--schedule", "none.json"});
  const std::string bad = write("bad.json", R"({"stages": [{}], "tasks": [{"kind": "F", "stage": 0}]})");
  expect_refused(job(pipeline + "--schedule " + bad),
                 {"--schedule", "no backward of micro-batch 0 on stage 0"});
  expect_refused(job(pipeline + "--stages 4 --chunks 2"), {"'1f1b'", "only interleaved takes chunks"});
  expect_refused(job(pipeline + "--stages 3 --chunks 2 --schedule interleaved"),
                 {"3 stages", "multiple of 2"});
  expect_refused(job(pipeline + "--stages 4 --chunks 2 --schedule interleaved --microbatches 1"),
                 {"multiple of 2"});
  expect_refused(job(pipeline + "--stages 2 --schedule pipedream-2bw"), {"2 or more micro-batches"});
  const std::string two =
      write("two.json", engine::to_json(make_schedule("1f1b", {.stages = 2, .microbatches = 2})));
  expect_refused(job(pipeline + "--stages 3 --schedule " + two), {"2 stages", "3"});
  expect_refused(job(pipeline + "--lockstep --schedule " + two), {"--lockstep", "with --schedule FILE.json"});
  expect_refused(job("--chunks 2"), {"--chunks", "without --parallel pipeline"});
}

}  // namespace
}  // namespace tandem::testing
