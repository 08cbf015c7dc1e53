// The costs of instructions, measured in a run on one thread that is as real as possible.
#include <chrono>
#include <cmath>
#include <filesystem>
#include <memory>
#include <mutex>
#include <set>
#include <thread>

#include <gtest/gtest.h>

#include <tandem/core/base/error.h>
#include <tandem/core/base/machine.h>
#include <tandem/core/graph/graph_ops.h>
#include <tandem/core/runtime/profile.h>
#include <tandem/core/runtime/trial_run.h>
#include <tandem/ops/kernels.h>
#include <tandem/plan/build.h>

#include "training_run.h"

namespace tandem::testing {
using namespace engine;
namespace {

// Every instruction finds the values of a real run, whatever stages and lanes there are.
TEST(TrialRun, GivesTheLossesOfARealRun) {
  Job job = small_residual_job();
  for (const Strategy& s :
       {Strategy{}, Strategy{.microbatches = 2, .stages = 4, .schedule = "1f1b"},
        Strategy{.stages = 3, .schedule = "dualpipe", .swap = {"block0"}, .recompute = {"block2"}},
        Strategy{.stages = 4, .schedule = "pipedream"}}) {
    SCOPED_TRACE(::testing::Message() << s.stages << " stages, " << s.schedule);
    JobHost host(job, s.microbatches);
    instruction_seconds(program_of(job, s), cpu_kernels(), host, initial_state(job));
    job.drains = {std::ssize(host.losses)};
    EXPECT_GE(job.drains[0], 3);
    EXPECT_EQ(host.losses, train(job, s).losses);
  }
}

// The threads that copied.
std::set<std::thread::id> copiers;
std::mutex copiers_mutex;

KernelPtr make_noted_copy(const KernelSpec& spec) {
  KernelPtr copy = cpu_kernels().make(spec);
  return make_kernel([copy = std::shared_ptr<Kernel>(std::move(copy))](const Launch& launch) {
    {
      const std::lock_guard lock(copiers_mutex);
      copiers.insert(std::this_thread::get_id());
    }
    copy->run(launch);
  });
}

TEST(TrialRun, CopiesBesideComputation) {
  const Job job = small_residual_job();
  KernelTable noted("noted", &cpu_kernels());
  noted.add("copy_out", make_noted_copy);
  noted.add("copy_in", make_noted_copy);
  JobHost host(job, 1);
  const auto slowdown = [&](const Strategy& s) {
    return copy_slowdown(program_of(job, s), noted, host, initial_state(job));
  };
  EXPECT_EQ(1, slowdown({})) << "it copies nothing";
  EXPECT_TRUE(copiers.empty());
  const double ratio = slowdown({.swap = {"block0"}});
  EXPECT_TRUE(std::isfinite(ratio) && ratio > 0) << ratio;
  EXPECT_EQ(2, std::ssize(copiers)) << "the thread that computes, and one beside it";
}

class SlowHost final : public JobHost {
 public:
  using JobHost::JobHost;
  void fill(const HostInput& in) override {
    if (in.name == "images") std::this_thread::sleep_for(std::chrono::milliseconds(2));
    JobHost::fill(in);
  }
};

const Instruction& input_instruction(const Program& p, const std::string& name) {
  return *std::find_if(p.instructions.begin(), p.instructions.end(), [&](const Instruction& s) {
    const auto* input = as<InputOp>(s);
    return input && input->input == name;
  });
}

TEST(Profile, MeasuresComputationHostAndTransfers) {
  const Job job = small_residual_job();
  const Program p = program_of(job, {.replicas = 2, .stages = 2});
  SlowHost host(job, 1);
  Profile profile;
  profile.measure(p, cpu_kernels(), host, initial_state(job));
  const Program costed = with_costs(p, profile);
  EXPECT_GE(input_instruction(costed, "images").cost.seconds, 2e-3);
  EXPECT_LT(input_instruction(costed, "labels").cost.seconds, 2e-3);
  for (const InstructionId s : costed.instructions.ids()) {
    const Instruction& instruction = costed.instruction(s);
    const LaneKind kind = costed.lane_of(s).kind;
    if (kind != LaneKind::compute && kind != LaneKind::receive) continue;
    EXPECT_GT(instruction.cost.seconds, 0) << instruction.name;
  }
}

TEST(Profile, RoundTripsAndRefusesUnknownInstructions) {
  Job job = small_residual_job();
  const Program p = program_of(job, {});
  JobHost host(job, 1);
  Profile profile;
  profile.measure(p, cpu_kernels(), host, initial_state(job));
  const std::string file = (std::filesystem::temp_directory_path() / "tandem_profile_test.json").string();
  profile.write(file);
  const Profile read = Profile::read(file);
  std::filesystem::remove(file);
  EXPECT_EQ(machine_name(), read.machine());
  EXPECT_EQ("", Profile::parse("older", "{}").machine());
  for (const Instruction& s : p.instructions) EXPECT_EQ(profile.seconds(s, 1), read.seconds(s, 1)) << s.name;
  job.batch_size = 16;
  const Program larger = program_of(job, {});
  for (const char* name : {"images", "labels"})
    EXPECT_THROW(read.seconds(input_instruction(larger, name), 1), Error);
  EXPECT_THROW(with_costs(larger, read), Error);
}

}  // namespace
}  // namespace tandem::testing
