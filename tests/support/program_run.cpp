#include "program_run.h"

#include <algorithm>
#include <map>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <tandem/core/base/error.h>
#include <tandem/core/base/rng.h>
#include <tandem/core/runtime/cpu_backend.h>
#include <tandem/core/runtime/executable.h>
#include <tandem/dist/thread_comm.h>

#include "program_builder.h"
#include "test_op.h"

namespace tandem::testing {
using namespace engine;
namespace {

// Leaves out the scratch, which random_programs.cpp names so and lists last.
std::vector<MemberId> without_workspace(const Program& p, std::vector<MemberId> members) {
  std::erase_if(members, [&](MemberId m) { return p.member(m).name.ends_with(" workspace"); });
  return members;
}

std::uint64_t filled(std::int64_t bytes, std::uint64_t hash) {
  std::vector<std::byte> contents(at(bytes));
  fill_bytes(contents, hash);
  return hash_bytes(contents);
}
std::uint64_t start_hash(const MemoryBlock& state) { return fnv1a("start of " + state.name); }

const Instruction* other_end(const Program& p, const Instruction& receive) {
  for (const Instruction& s : p.instructions)
    if (s.channel == receive.channel && p.lanes[at(s.lane)].kind == LaneKind::send) return &s;
  return nullptr;
}

}  // namespace

// ---- the oracle ----------------------------------------------------------------------------------------

Evaluation::Evaluation(const Program& program, std::int64_t batches)
    : program_(program),
      maker_(program.members.size(), -1),
      assigned_(program.blocks.size(), -1),
      versions_(program.blocks.size()) {
  const std::size_t instructions = program.instructions.size();
  record_.made.assign(instructions, std::vector<std::uint64_t>(at(batches)));
  record_.read.assign(instructions, std::vector<std::vector<std::uint64_t>>(at(batches)));
  done_.assign(instructions, std::vector<char>(at(batches), 0));
  for (std::size_t s = 0; s < instructions; ++s)
    for (MemberId m : program.instructions[s].writes) {
      maker_[at(m)] = static_cast<InstructionId>(s);
      if (is_state(program, m)) assigned_[at(program.members[at(m)].block)] = m;
    }
  for (std::int64_t b = 0; b < batches; ++b)
    for (std::size_t s = 0; s < instructions; ++s) run(static_cast<InstructionId>(s), b);
  for (const StateBlock& state : program.states)
    record_.states.push_back(version_contents(state.block, batches));
}

std::uint64_t Evaluation::version_contents(BlockId state, std::int64_t version) {
  auto& versions = versions_[at(state)];
  const MemoryBlock& block = program_.blocks[at(state)];
  if (versions.empty()) versions.push_back(filled(block.bytes, start_hash(block)));
  if (assigned_[at(state)] < 0) return versions[0];
  while (static_cast<std::int64_t>(versions.size()) <= version) {
    const std::uint64_t next = contents(assigned_[at(state)], static_cast<std::int64_t>(versions.size()) - 1);
    versions.push_back(next);
  }
  return versions[at(version)];
}

std::int64_t Evaluation::version(BlockId state, std::uint64_t contents) const {
  const auto& versions = versions_[at(state)];
  const auto found = std::find(versions.begin(), versions.end(), contents);
  return found == versions.end() ? -1 : found - versions.begin();
}

std::uint64_t Evaluation::contents(MemberId m, std::int64_t batch) {
  const Member& member = program_.members[at(m)];
  const InstructionId maker = maker_[at(m)];
  if (maker < 0) return version_contents(member.block, member.index(batch));
  const Instruction& instruction = program_.instructions[at(maker)];
  const std::uint64_t made = run(maker, batch);
  if (program_.lane_of(maker).kind == LaneKind::receive)
    return contents(other_end(program_, instruction)->reads[0], batch);
  const auto outputs = without_workspace(program_, instruction.writes);
  const auto o = std::find(outputs.begin(), outputs.end(), m) - outputs.begin();
  return filled(member.bytes, output_hash(made, at(o)));
}

std::uint64_t Evaluation::run(InstructionId s, std::int64_t batch) {
  std::uint64_t& made = record_.made[at(s)][at(batch)];
  if (done_[at(s)][at(batch)]) return made;
  const Instruction& instruction = program_.instructions[at(s)];
  std::vector<std::uint64_t> read;
  for (MemberId m : instruction.reads) read.push_back(contents(m, batch));
  made = made_hash(instruction.name, batch, read);
  record_.read[at(s)][at(batch)] = std::move(read);
  done_[at(s)][at(batch)] = 1;
  return made;
}

// ---- the engine ----------------------------------------------------------------------------------------

Program with_test_ops(Program p) {
  for (Instruction& instruction : p.instructions) {
    const Lane& lane = p.lanes[at(instruction.lane)];
    const bool meets = instruction.channel >= 0 && instruction.reads.empty() && instruction.writes.empty();
    const auto kind = lane.kind == LaneKind::send      ? TestOp::Kind::send
                      : lane.kind == LaneKind::receive ? TestOp::Kind::receive
                      : meets                          ? TestOp::Kind::meet
                                                       : TestOp::Kind::make;
    const auto types = [&](const std::vector<MemberId>& members) {
      Types result;
      for (MemberId m : without_workspace(p, members))
        result.push_back({DType::u8, {p.members[at(m)].bytes}});
      return result;
    };
    instruction.inputs = types(instruction.reads);
    instruction.outputs = types(instruction.writes);
    instruction.op = std::make_shared<TestOp>(kind, instruction.name, lane.index, nullptr);
  }
  return p;
}

namespace {
Program with_logs(Program p, std::vector<InstructionLog>& logs) {
  logs.resize(p.instructions.size());
  for (std::size_t s = 0; s < p.instructions.size(); ++s) {
    const auto& op = static_cast<const TestOp&>(*p.instructions[s].op);
    p.instructions[s].op = std::make_shared<TestOp>(op.kind, op.instruction, op.peer, &logs[s]);
  }
  return p;
}
}  // namespace

struct CpuRun::Stage {
  Stage(const Program& program, int device, std::shared_ptr<Comm> comm, const Options& options, double origin)
      : comm(std::move(comm)),
        executable(with_logs(project(program, device), logs),
                   {.rank = device, .device = device, .devices = program.devices, .comm = this->comm.get()},
                   memory, test_kernels()),
        backend(executable, lanes, options.spans, origin) {
    executable.poison(options.poison);
  }

  void run(std::int64_t batches) {
    for (const StateBlock& s : executable.program().states)
      if (mine(s))
        fill_bytes(memory.state(executable.program(), s),
                   start_hash(executable.program().blocks[at(s.block)]));
    for (InstructionLog& log : logs) {
      log.made.assign(at(batches), 0);
      log.read.assign(at(batches), {});
    }
    try {
      engine::run(backend, batches);
    } catch (const Aborted&) {
      if (!error) error = std::current_exception();
    } catch (...) {
      error = std::current_exception();
    }
    executable.settle(batches);
  }
  bool mine(const StateBlock& s) const {
    return executable.program().blocks[at(s.block)].device == executable.rank().device;
  }

  std::shared_ptr<Comm> comm;
  std::vector<InstructionLog> logs;
  RankMemory memory;
  CpuLanes lanes;
  Executable executable;
  CpuBackend backend;
  std::exception_ptr error;
};

CpuRun::CpuRun(Program planned, Options options) : program_(with_test_ops(std::move(planned))) {
  const ThreadWorld world(program_.devices);
  const double origin = steady_seconds();  // of all stages, so that their spans compare
  for (int device = 0; device < program_.devices; ++device)
    stages_.push_back(std::make_unique<Stage>(program_, device, std::shared_ptr<Comm>(world.comm(device)),
                                              options, origin));
}
CpuRun::~CpuRun() = default;

Record CpuRun::run(std::int64_t batches) {
  std::vector<std::thread> threads;
  for (auto& stage : stages_) threads.emplace_back([&stage, batches] { stage->run(batches); });
  for (auto& t : threads) t.join();
  std::exception_ptr aborted;
  for (auto& stage : stages_)
    if (const auto error = std::exchange(stage->error, nullptr)) {
      try {
        std::rethrow_exception(error);
      } catch (const Aborted&) {
        aborted = error;
      }
    }
  if (aborted) std::rethrow_exception(aborted);

  Record record;
  std::vector<std::size_t> next(stages_.size(), 0);
  for (std::size_t s = 0; s < program_.instructions.size(); ++s) {
    const auto device = at(program_.lane_of(static_cast<InstructionId>(s)).device);
    const InstructionLog& log = stages_[device]->logs[next[device]++];
    record.made.push_back(log.made);
    record.read.push_back(log.read);
  }
  for (const StateBlock& s : program_.states) {
    const auto& stage = *stages_[at(program_.blocks[at(s.block)].device)];
    record.states.push_back(hash_bytes(stage.memory.state(stage.executable.program(), s)));
  }
  return record;
}

Timeline CpuRun::timeline() {
  Timeline all = empty_timeline(program_);
  for (auto& stage : stages_)
    for (Span span : stage->backend.timeline().spans) {
      span.instruction = stage->executable.program().instructions[at(span.instruction)].origin;
      all.spans.push_back(span);
    }
  return all;
}

std::int64_t CpuRun::executed_peak(int device) const {
  return stages_[at(device)]->executable.executed_peak();
}

std::vector<std::vector<std::pair<InstructionId, std::int64_t>>> lane_orders(const Timeline& t) {
  std::vector<Span> spans = t.spans;
  std::stable_sort(spans.begin(), spans.end(),
                   [](const Span& a, const Span& b) { return a.begin < b.begin; });
  std::vector<std::vector<std::pair<InstructionId, std::int64_t>>> order(t.lane_names.size());
  for (const Span& s : spans) order[at(s.lane)].emplace_back(s.instruction, s.batch);
  return order;
}

FixedOrders expect_fixed_orders(const Program& p, const Timeline& t) {
  std::map<std::pair<InstructionId, std::int64_t>, const Span*> executions;  // by unit
  for (const Span& s : t.spans) executions[{s.instruction, s.unit}] = &s;
  const auto execution = [&](InstructionId s, std::int64_t unit) -> const Span* {
    const auto found = executions.find({s, unit});
    return found == executions.end() ? nullptr : found->second;
  };
  FixedOrders orders;
  for (const Span& s : t.spans) {
    const Instruction& instruction = p.instruction(s.instruction);
    for (const Wait& wait : instruction.waits)
      if (const Span* awaited = execution(wait.instruction, s.unit - wait.back)) {
        EXPECT_LE(awaited->end, s.begin) << instruction.name << " of unit " << s.unit << " waits for "
                                         << p.instruction(wait.instruction).name;
        ++orders.waits;
      }
    if (instruction.channel < 0 || p.lane(s.lane).kind == LaneKind::send) continue;
    for (const InstructionId end : p.instructions.ids())
      if (end != s.instruction && p.instruction(end).channel == instruction.channel) {
        const Span* other = execution(end, s.unit);
        EXPECT_TRUE(other && other->begin <= s.end)
            << instruction.name << " of unit " << s.unit << " ended before " << p.instruction(end).name;
        ++orders.channels;
      }
  }
  return orders;
}

}  // namespace tandem::testing
