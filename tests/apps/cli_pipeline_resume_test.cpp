// Runs under every pipeline schedule stop and resume: the same bits, with other ranks, on other stages, and
// after a signal at any moment.
#include <random>

#include <fmt/format.h>

#include <tandem/pipeline/schedules.h>
#include <tandem/train/checkpoint.h>

#include "cli_resume.h"
#include "seed.h"
#include "test_name.h"

namespace tandem::testing {
namespace {

// Batches of 60 of 448 images: the last of an epoch has 28. Each checkpoint is tested, too.
class PipelineResume : public Resume, public ::testing::WithParamInterface<std::string> {
 protected:
  std::string on_stages(int stages) const {
    std::string flags = kShort +
                        "-b 60 --arch mlp-residual --microbatches 4 --parallel pipeline --schedule " +
                        GetParam() + fmt::format(" --stages {} ", stages);
    if (GetParam() == "interleaved") flags += fmt::format("--chunks {} ", std::min(stages, 2));
    if (GetParam() == "dualpipe-vs") flags += "--lockstep ";
    return flags;
  }
  std::string job(int stages) const {
    return on_stages(stages) + "--lr 0.002 --keep-best --keep 9 --checkpoint-every 5 --output ";
  }
  bool flushes() const {
    return !make_schedule(GetParam(), {.stages = 4, .microbatches = 4}).overlaps_batches();
  }
  static bool warns(const Ended& e) { return e.out.find("warning: losses can differ") < e.out.size(); }
  void expect_same_end(const std::string& a, const std::string& b) const {
    expect_same_checkpoint(checkpoint(a, 20), checkpoint(b, 20));
    for (const char* key : {"test_accuracy", "train_loss"})
      EXPECT_EQ(read(a + "/summary.json").at(key), read(b + "/summary.json").at(key)) << key;
  }
};

TEST_P(PipelineResume, TenPlusTenStepsEqualTwentyBitwise) {
  succeed(job(4) + file("whole"));
  const Ended rest = succeed(job(4) + file("rest") + " --resume " + checkpoint("whole", 10));
  EXPECT_FALSE(warns(rest)) << rest.out;
  ASSERT_EQ(10u, losses("rest").size());
  EXPECT_EQ(losses("whole", 10), losses("rest"));
  expect_same_end("whole", "rest");
  const Ended tested = succeed(on_stages(4) + "-e --resume " + checkpoint("whole", 20));
  EXPECT_NE(std::string::npos,
            tested.out.find(fmt::format("test accuracy {:.2f}",
                                        100 * read("whole/summary.json").at("test_accuracy").get<double>())))
      << tested.out;
}

TEST_P(PipelineResume, OnOtherNumbersOfStages) {
  succeed(job(4) + file("four"));
  std::string from = checkpoint("four", 5);
  for (const int stages : {2, 1, 4}) {
    SCOPED_TRACE(stages);
    const std::string output = fmt::format("on-{}", stages);
    const Ended e = succeed(job(stages) + file(output) + " --resume " + from);
    EXPECT_EQ(!flushes(), warns(e)) << e.out;
    if (flushes()) {
      EXPECT_EQ(losses("four", 20 - static_cast<int>(losses(output).size())), losses(output));
      expect_same_end("four", output);
    }
    from = checkpoint(output, stages == 2 ? 10 : 15);
  }
}

TEST_P(PipelineResume, StopsAfterEpochsWithoutABetterAccuracy) {
  const std::string stops = " --steps 0 --epochs 30 --patience 1 --lr 0 ";
  succeed(job(2) + file("stopped") + stops);
  EXPECT_EQ(16u, losses("stopped").size()) << "two epochs of 8 batches";
  EXPECT_TRUE(fs::exists(checkpoint("stopped", 16)));
}

// The signal comes at a random moment of a run that would take much longer. The run saves a checkpoint then;
// where several batches are in flight, it drains them, as a run does that ends there by itself.
TEST_P(PipelineResume, AfterASignalAtAnyMoment) {
  std::mt19937_64 random = generator(GetParam());
  const std::string steps = " --steps 40 --resume auto";
  succeed(job(2) + file("whole") + steps);
  for (int i = 0; i < 3; ++i) {
    const std::string run_of = fmt::format("run-{}", i), command = job(2) + file(run_of) + steps;
    const double after = draw_real(random, 0, 0.25);
    const Ended e = run(fmt::format("{} & sleep {}; kill -TERM $!; wait $!", command, after));
    SCOPED_TRACE(::testing::Message() << "after " << after << " s: " << e.err);
    EXPECT_TRUE(e.status == 143 || e.status == 0) << e.status;
    const std::vector<std::int64_t> saved = checkpoint_steps(file(run_of) + "/checkpoints");
    succeed(command);
    std::string like = "whole";
    if (!flushes() && !saved.empty() && saved.back() < 40) {
      like = fmt::format("like-{}", i);
      succeed(job(2) + file(like) + fmt::format(" --steps {}", saved.back()));
      succeed(job(2) + file(like) + steps);
    }
    EXPECT_EQ(losses(like), losses(run_of));
    expect_same_checkpoint(checkpoint(like, 40), checkpoint(run_of, 40));
  }
}

#if TANDEM_HAS_MPIRUN
TEST_P(PipelineResume, AsProcessesWhatThreadsBeganAndBack) {
  const int stages = GetParam() == "interleaved" ? 4 : 2;  // on two devices
  succeed(job(stages) + file("threads"));
  succeed(kMpi + job(stages) + file("processes") + " --resume " + checkpoint("threads", 5));
  succeed(job(stages) + file("back") + " --resume " + checkpoint("processes", 10));
  EXPECT_EQ(losses("threads", 5), losses("processes"));
  EXPECT_EQ(losses("threads", 10), losses("back"));
  expect_same_end("threads", "processes");
  expect_same_end("threads", "back");
}
#endif

INSTANTIATE_TEST_SUITE_P(Schedules, PipelineResume, ::testing::ValuesIn(schedule_names()),
                         [](const auto& info) { return test_name(info.param); });

}  // namespace
}  // namespace tandem::testing
