// Failures while a Program runs: every rank stops soon, and the message names the place.
#include <chrono>

#include <gtest/gtest.h>

#include <tandem/core/base/error.h>
#include <tandem/core/graph/kernel.h>
#include <tandem/dist/thread_comm.h>
#include <tandem/plan/build.h>

#include "expect_error.h"
#include "training_run.h"

namespace tandem::testing {
using namespace engine;
namespace {

// Supplies zeros; calls `fail` on one rank for one batch.
class FailingHost final : public Host {
 public:
  FailingHost(int rank, std::int64_t batch, std::function<void(const HostInput&)> fail,
              std::string input = "labels")
      : rank_(rank), batch_(batch), fail_(std::move(fail)), input_(std::move(input)) {}
  void fill(const HostInput& in) override {
    std::ranges::fill(in.bytes, std::byte{0});
    if (in.name == input_ && in.rank.rank == rank_ && in.batch == batch_) fail_(in);
  }
  void deliver(const HostResult&) override {}

 private:
  int rank_;
  std::int64_t batch_;
  std::function<void(const HostInput&)> fail_;
  std::string input_;
};

std::string failure_of(const Job& job, const Strategy& strategy, Host& host) {
  const Program program = program_of(job, strategy);
  Session session(program, thread_comms(program.ranks()), host);
  session.load(initial_state(job));
  const auto begin = std::chrono::steady_clock::now();
  const std::string message = message_of([&] { session.run(0, 50); });
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(3));
  return message;
}

TEST(Failure, ARankThatThrowsStopsAllAndIsNamedWithBatchAndInstruction) {
  const Job job = small_residual_job();
  for (const Strategy& s : {Strategy{.replicas = 4}, Strategy{.stages = 4, .schedule = "dualpipe"},
                            Strategy{.replicas = 2, .microbatches = 2, .stages = 2, .schedule = "1f1b"}}) {
    const int rank = s.replicas * s.stages - 1;  // labels are used on the last stage
    FailingHost host(rank, 3, [](const HostInput&) { throw Error("the disk is gone"); });
    expect_words(failure_of(job, s, host),
                 {"rank " + std::to_string(rank), "batch 3", "input", "the disk is gone"});
  }
}

TEST(Failure, ALabelOutOfRangeNamesModuleOpAndSample) {
  FailingHost host(0, 2, [](const HostInput& in) { in.as<std::int32_t>()[5] = 77; });
  expect_words(failure_of(small_residual_job(), {}, host),
               {"rank 0", "batch 2", "instruction loss cross_entropy:", "cross_entropy", "label 5 of 8", "77", "5 classes"});
}

TEST(Failure, ShapesThatDoNotFitNameModuleOpAndShapes) {
  Job job = small_residual_job();
  job.sample = {2, 2, 4};  // the stem wants 12 features
  expect_error([&] { trace_job(job, 8); }, {"stem", "linear", "f32[8, 16]", "f32[16, 12]"});
}

TEST(Failure, DtypesThatDoNotFitNameModuleAndOp) {
  Job job = small_residual_job();
  nn::set_default_dtype(DType::f64);
  const auto model = job.model();
  model->initialize(1);
  expect_error(
      [&] {
        (*model)(Tensor::zeros({DType::f32, {8, 2, 2, 3}}));
      },
      {"stem", "matmul", "f32[8, 12]", "f64[16, 12]"});
}

TEST(Failure, MissingStateIsNamed) {
  const Job job = small_residual_job();
  FailingHost host(-1, 0, {});
  Session session(program_of(job, {}), {}, host);
  auto state = initial_state(job);
  state.erase("block2.first.weight");
  expect_error([&] { session.load(state); }, {"block2.first.weight", "missing"});
}

}  // namespace
}  // namespace tandem::testing
