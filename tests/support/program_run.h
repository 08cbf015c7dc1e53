#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include <tandem/core/runtime/timeline.h>
#include <tandem/core/schedule/program.h>

namespace tandem::testing {
using namespace engine;

/// What the executions of a Program's steps read and made, as hashes of the contents. Every step fills its
/// outputs with bytes that follow from its name, its batch and all bytes that it read, so that one wrong byte
/// anywhere changes everything that depends on it.
struct Record {
  std::vector<std::vector<std::uint64_t>> made;               ///< [step][batch]
  std::vector<std::vector<std::vector<std::uint64_t>>> read;  ///< [step][batch][operand]
  std::vector<std::uint64_t> states;                          ///< contents of every state when drained
  bool operator==(const Record&) const = default;
};

/// The oracle: values as functions of steps and batches, every version of every state kept, nothing placed,
/// nothing scheduled, no list order.
class Evaluation {
 public:
  Evaluation(const Program& program, std::int64_t batches);
  const Record& record() const { return record_; }
  /// The version of a state that has these contents; −1 if none has.
  std::int64_t version(BlockId state, std::uint64_t contents) const;

 private:
  std::uint64_t contents(MemberId member, std::int64_t batch);
  std::uint64_t version_contents(BlockId state, std::int64_t version);
  std::uint64_t run(InstructionId step, std::int64_t batch);

  const Program& program_;
  Record record_;
  std::vector<std::vector<char>> done_;               // [step][batch]
  std::vector<InstructionId> maker_;                  // per member
  std::vector<MemberId> assigned_;                    // per block: the member that a step writes
  std::vector<std::vector<std::uint64_t>> versions_;  // [block][version]
};

/// The steps given ops whose kernels do what Record describes, and take their time doing it.
Program with_test_ops(Program program);

struct CpuRunOptions {
  bool poison = false;
  std::size_t spans = 0;  ///< per lane
};

/// A planned Program on this machine: a thread per stage, a worker per lane, transfers between them.
class CpuRun {
 public:
  using Options = CpuRunOptions;
  explicit CpuRun(Program planned, Options options = {});
  ~CpuRun();

  /// From fresh states, empty to drained. Throws what the first failing stage threw.
  Record run(std::int64_t batches);
  /// Of the runs since the last call, all stages.
  Timeline timeline();
  std::int64_t executed_peak(int device) const;

 private:
  struct Stage;
  Program program_;
  std::vector<std::unique_ptr<Stage>> stages_;
};

/// The order in which every lane executed (step, batch).
std::vector<std::vector<std::pair<InstructionId, std::int64_t>>> lane_orders(const Timeline& timeline);

}  // namespace tandem::testing
