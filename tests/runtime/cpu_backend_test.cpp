// Lanes as threads: what they guarantee in addition to correct results.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <thread>

#include <fmt/format.h>

#include <tandem/core/base/error.h>
#include <tandem/core/runtime/cpu_backend.h>
#include <tandem/core/runtime/executable.h>
#include <tandem/core/schedule/verify.h>
#include <tandem/dist/thread_comm.h>
#include <tandem/memory/placement.h>

#include "allocations.h"
#include "expect_error.h"
#include "program_builder.h"
#include "program_run.h"
#include "schedules.h"
#include "test_op.h"

namespace tandem::testing {
using namespace engine;
namespace {

/// Calls a function of the test.
class Call final : public Op {
 public:
  explicit Call(std::function<void(const Launch&)> function) : function(std::move(function)) {}
  std::string_view name() const override { return "call"; }
  Types infer(std::span<const TensorType>) const override { return {}; }
  Tensors vjp(const VjpArgs&) const override { no_rule(*this, "vjp", "it only stands for an instruction"); }
  Tensors vmap(const VmapArgs&) const override {
    no_rule(*this, "vmap", "it only stands for an instruction");
  }
  Work cost(std::span<const TensorType>, std::span<const TensorType>) const override { return {}; }
  std::vector<Alias> may_alias(std::span<const TensorType>) const override { return {}; }
  const std::function<void(const Launch&)> function;
};

const KernelTable& call_kernels() {
  static const KernelTable table = [] {
    KernelTable t("call");
    t.add("call", [](const KernelSpec& spec) -> KernelPtr {
      return make_kernel(static_cast<const Call&>(spec.op).function);
    });
    return t;
  }();
  return table;
}

void set_call(Instruction& instruction, std::function<void(const Launch&)> function) {
  instruction.op = std::make_shared<Call>(std::move(function));
  instruction.inputs.assign(instruction.reads.size(), {});
  instruction.outputs.assign(instruction.writes.size(), {});
}

/// `A` and `C` on one lane, `B` on another between them.
Program three_instructions() {
  ProgramBuilder b;
  const MemberId x = b.value("x", 0), y = b.value("y", 0);
  b.add({.name = "A", .lane = b.lane(0), .writes = {x}, .tag = {.path = "net.first"}});
  b.add({.name = "B",
         .lane = b.lane(0, LaneKind::compute, 1),
         .reads = {x},
         .writes = {y},
         .tag = {.path = "net.second"}});
  b.add({.name = "C", .lane = b.lane(0), .reads = {y}});
  return planned(b.take());
}

struct Rank {
  Rank(Program p, const KernelTable& kernels, RankContext context = {}, std::size_t spans = 0)
      : executable(std::move(p), context, memory, kernels), backend(executable, lanes, spans) {}
  RankMemory memory;
  CpuLanes lanes;
  Executable executable;
  CpuBackend backend;
};

TEST(CpuBackend, AllocatesNothingWhileRunning) {
  for (const Program& p : {planned(mu_two(equal_stages(8))), planned(overlapped_all_reduce(equal_stages(8))),
                           planned(dualpipe(equal_stages(1)))}) {
    Rank rank(with_test_ops(p), idle_kernels(), {}, 100'000);
    run(rank.backend, 20);
    const long before = allocations();
    run(rank.backend, 50);
    EXPECT_EQ(allocations(), before);
  }
}

TEST(CpuBackend, RunsMoreCommandsThanItsQueuesHold) {
  std::int64_t executed = 0, last = -1;
  Program p = three_instructions();
  for (Instruction& s : p.instructions) set_call(s, [](const Launch&) {});
  set_call(p.instructions[2], [&](const Launch& l) {
    ++executed;
    EXPECT_EQ(l.batch, last + 1);
    last = l.batch;
  });
  Rank rank(std::move(p), call_kernels());
  run(rank.backend, 20'000);
  EXPECT_EQ(executed, 20'000);
}

// A unit longer than the queues, whose second lane starts with the last result of the first.
TEST(CpuBackend, RunsUnitsLongerThanItsQueues) {
  ProgramBuilder b;
  const LaneId one = b.lane(0), two = b.lane(0, LaneKind::compute, 1);
  const MemberId x = b.value("x", 0);
  constexpr int kInstructions = 10'000;
  for (int i = 0; i + 1 < kInstructions; ++i) b.add({.name = fmt::format("one {}", i), .lane = one});
  b.add({.name = "last", .lane = one, .writes = {x}});
  for (int i = 0; i < kInstructions; ++i)
    b.add({.name = fmt::format("two {}", i), .lane = two, .reads = {x}});
  Rank rank(with_test_ops(planned(b.take())), idle_kernels(), {}, 3 * kInstructions);
  run(rank.backend, 3);
  EXPECT_EQ(rank.backend.timeline().spans.size(), at(3 * 2 * kInstructions));
}

// Two stages that first list what they receive, then many instructions that need it, and last what they send.
TEST(CpuBackend, RunsUnitsLongerThanItsQueuesBetweenReceiveAndSend) {
  ProgramBuilder b(2);
  constexpr int kInstructions = 10'000;
  MemberId made[2], received[2];
  const std::int64_t channel[2] = {b.new_channel(), b.new_channel()};
  for (int d : {0, 1}) {
    made[d] = b.value(fmt::format("x{}", d), d);
    received[d] = b.value(fmt::format("y{}", d), d);
    b.add({.name = fmt::format("make {}", d), .lane = b.lane(d), .writes = {made[d]}});
  }
  for (int d : {0, 1}) {
    b.add({.name = fmt::format("receive {}", d),
           .lane = b.lane(d, LaneKind::receive, 1 - d),
           .writes = {received[d]},
           .channel = channel[d]});
    for (int i = 0; i < kInstructions; ++i)
      b.add({.name = fmt::format("use {} {}", d, i), .lane = b.lane(d), .reads = {received[d]}});
  }
  for (int d : {0, 1})
    b.add({.name = fmt::format("send {}", d),
           .lane = b.lane(d, LaneKind::send, 1 - d),
           .reads = {made[d]},
           .channel = channel[1 - d]});
  const Program p = planned(b.take());
  verify(p);
  CpuRun cpu(p);
  EXPECT_EQ(cpu.run(3), Evaluation(p, 3).record());
}

TEST(CpuBackend, AnErrorNamesRankBatchInstructionAndModule) {
  Program p = three_instructions();
  for (Instruction& s : p.instructions) set_call(s, [](const Launch&) {});
  std::atomic<int> after{0};
  set_call(p.instructions[1], [](const Launch& l) {
    if (l.batch == 3) throw Error("the shapes do not match");
  });
  set_call(p.instructions[2], [&](const Launch& l) { after += l.batch >= 3; });
  Rank rank(std::move(p), call_kernels(), {.rank = 7});
  expect_error([&] { run(rank.backend, 10); },
               {"rank 7", "batch 3", "instruction B of", "'net.second'", "the shapes do not match"});
  EXPECT_EQ(after, 0) << "an instruction that waits for a failed one must not run";
}

TEST(CpuBackend, RunsAgainAfterAnError) {
  bool fail = true;
  std::atomic<int> executed{0};
  Program p = three_instructions();
  set_call(p.instructions[0], [&](const Launch&) {
    if (fail) throw std::runtime_error("once");
  });
  set_call(p.instructions[1], [](const Launch&) {});
  set_call(p.instructions[2], [&](const Launch&) { ++executed; });
  Rank rank(std::move(p), call_kernels());
  EXPECT_THROW(run(rank.backend, 5), Error);
  fail = false;
  executed = 0;
  EXPECT_NO_THROW(run(rank.backend, 5));
  EXPECT_EQ(executed, 5);
}

TEST(CpuBackend, ANonFiniteErrorKeepsItsTypeAndBatch) {
  Program p = three_instructions();
  for (Instruction& s : p.instructions) set_call(s, [](const Launch&) {});
  set_call(p.instructions[2], [](const Launch& l) {
    if (l.batch == 2) throw NonFinite("the loss is NaN", l.batch);
  });
  Rank rank(std::move(p), call_kernels());
  try {
    run(rank.backend, 5);
    FAIL() << "nothing was thrown";
  } catch (const NonFinite& e) {
    EXPECT_EQ(e.batch, 2);
  }
}

TEST(CpuBackend, StopFromAnotherThreadEndsTheRun) {
  Program p = three_instructions();
  for (Instruction& s : p.instructions)
    set_call(s, [](const Launch&) { std::this_thread::sleep_for(std::chrono::milliseconds(1)); });
  Rank rank(std::move(p), call_kernels());
  std::thread stopper([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    rank.backend.stop(std::make_exception_ptr(Aborted("Ctrl-C")));
  });
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THROW(run(rank.backend, 60'000), Aborted);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30))
      << "60,000 batches would take minutes";
  stopper.join();
}

// A failing stage does not leave its neighbors waiting for its transfers.
TEST(CpuBackend, FailureOfOneStageEndsTheOthers) {
  const Program p = with_test_ops(planned(dualpipe(equal_stages(3))));
  const ThreadWorld world(3);
  std::vector<std::unique_ptr<Comm>> comms;
  std::vector<std::vector<InstructionLog>> logs(3);
  std::vector<std::string> errors(3);
  std::vector<std::thread> threads;
  for (int k = 0; k < 3; ++k) comms.push_back(world.comm(k));
  for (int k = 0; k < 3; ++k)
    threads.emplace_back([&, k] {
      Program mine = project(p, k);
      mine.purpose = "evaluation";
      logs[at(k)].resize(mine.instructions.size());
      for (std::size_t s = 0; s < mine.instructions.size(); ++s) {
        const auto& op = static_cast<const TestOp&>(*mine.instructions[s].op);
        auto& log = logs[at(k)][s];
        log.read.resize(op.instruction == "B1" ? 4 : 20);  // B1 finds no room for its fifth batch, and throws
        log.made.resize(20);
        mine.instructions[s].op = std::make_shared<TestOp>(op.kind, op.instruction, op.peer, &log);
      }
      Rank rank(std::move(mine), test_kernels(),
                {.rank = k, .device = k, .devices = 3, .comm = comms[at(k)].get()});
      try {
        run(rank.backend, 20);
      } catch (const Aborted& e) {
        errors[at(k)] = std::string("aborted: ") + e.what();
      } catch (const Error& e) {
        errors[at(k)] = e.what();
      }
    });
  for (auto& t : threads) t.join();
  EXPECT_NE(errors[1].find("rank 1, evaluation batch 4, instruction B1"), std::string::npos) << errors[1];
  for (int k : {0, 2}) {
    EXPECT_TRUE(errors[at(k)].starts_with("aborted")) << errors[at(k)];
    EXPECT_NE(errors[at(k)].find("instruction B1"), std::string::npos)
        << "every stage must get the cause: " << errors[at(k)];
  }
}

TEST(CpuBackend, TimelineHoldsASpanForEveryExecution) {
  Program p = three_instructions();
  for (Instruction& s : p.instructions)
    set_call(s, [](const Launch&) { std::this_thread::sleep_for(std::chrono::microseconds(200)); });
  Rank rank(std::move(p), call_kernels(), {}, 100);
  run(rank.backend, 10);
  const Timeline t = rank.backend.timeline();
  ASSERT_EQ(t.spans.size(), 30u);
  for (const Span& s : t.spans) EXPECT_GE(s.end - s.begin, 200e-6);
  const auto span = [&](InstructionId instruction, std::int64_t batch) {
    return *std::find_if(t.spans.begin(), t.spans.end(),
                         [&](const Span& s) { return s.instruction == instruction && s.batch == batch; });
  };
  for (std::int64_t b = 0; b < 10; ++b) {
    EXPECT_LE(span(0, b).end, span(1, b).begin);
    EXPECT_LE(span(1, b).end, span(2, b).begin);
  }
  EXPECT_EQ(t.dropped, 0);
  EXPECT_TRUE(rank.backend.timeline().spans.empty()) << "a second call returns only new spans";
  EXPECT_GE(t.busy(0), 20 * 200e-6);
  EXPECT_GE(t.seconds(), 30 * 200e-6);
}

TEST(CpuBackend, TimelineCountsTheSpansThatDoNotFit) {
  Program p = three_instructions();
  for (Instruction& s : p.instructions) set_call(s, [](const Launch&) {});
  Rank rank(std::move(p), call_kernels(), {}, 4);
  run(rank.backend, 10);
  const Timeline t = rank.backend.timeline();
  EXPECT_GT(t.dropped, 0);
  EXPECT_EQ(std::ssize(t.spans) + t.dropped, 30);
  EXPECT_EQ(rank.backend.timeline().dropped, 0) << "a second call returns only new spans";
}

// ---- memory that Programs share -------------------------------------------------------------------------

// Reads the state w and writes it, incremented; uses some work memory.
Program counting(std::int64_t work_bytes, int age, std::int64_t* seen) {
  ProgramBuilder b;
  const BlockId w = b.state("w", 0, 64);
  const MemberId x = b.value("x", 0, work_bytes);
  b.add({.name = "copy", .lane = b.lane(0), .reads = {b.read(w, age)}, .writes = {x}});
  b.add({.name = "add",
         .lane = b.lane(0),
         .reads = {x, b.read(w, 1)},
         .writes = {b.assign(w)},
         .in_place = true});
  Program p = planned(b.take());
  set_call(p.instructions[0], [](const Launch& l) { std::memcpy(l.out[0], l.in[0], 8); });
  set_call(p.instructions[1], [seen](const Launch& l) {
    std::memcpy(seen, l.in[0], 8);
    std::int64_t value = 0;
    std::memcpy(&value, l.in[1], 8);
    ++value;
    std::memcpy(l.out[0], &value, 8);
  });
  return p;
}

TEST(Executable, ProgramsThatShareMemoryContinueFromEachOthersState) {
  RankMemory memory;
  CpuLanes lanes;
  std::int64_t seen_small = -1, seen_large = -1;
  Executable small(counting(64, 1, &seen_small), {}, memory, call_kernels());
  CpuBackend first(small, lanes);
  const auto state = [&](const Executable& e) {
    std::int64_t value = 0;
    std::memcpy(&value, memory.state(e.program(), e.program().states[0]).data(), 8);
    return value;
  };
  const std::int64_t start = 0;
  std::memcpy(memory.state(small.program(), small.program().states[0]).data(), &start, 8);
  run(first, 5);
  small.settle(5);
  EXPECT_EQ(state(small), 5);

  Executable large(counting(1 << 20, 3, &seen_large), {}, memory, call_kernels());  // moves all arenas
  EXPECT_EQ(state(large), 5) << "the state must survive the growth of its arena";
  CpuBackend second(large, lanes);
  run(second, 4);
  large.settle(4);
  EXPECT_EQ(state(large), 9);
  EXPECT_EQ(seen_large, 6) << "the state must be three batches old";

  run(first, 1);
  small.settle(1);
  EXPECT_EQ(seen_small, 9) << "the smaller Program must use the new addresses";
  EXPECT_EQ(state(small), 10);
}

TEST(Executable, BatchNumbersContinueFromRunToRun) {
  std::vector<std::int64_t> batches;
  Program p = three_instructions();
  for (Instruction& s : p.instructions) set_call(s, [](const Launch&) {});
  set_call(p.instructions[2], [&](const Launch& l) { batches.push_back(l.batch); });
  Rank rank(std::move(p), call_kernels());
  run(rank.backend, 2);
  rank.executable.start_at(2);
  run(rank.backend, 2);
  EXPECT_EQ(batches, (std::vector<std::int64_t>{0, 1, 2, 3}));
}

}  // namespace
}  // namespace tandem::testing
