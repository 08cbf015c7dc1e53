#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include <tandem/core/runtime/timeline.h>
#include <tandem/core/schedule/program.h>

namespace tandem::testing {
using namespace engine;

/// What the executions of a Program's instructions read and made, as hashes. Every instruction fills its
/// outputs with bytes that follow from its name, its batch, and all bytes that it read. One wrong byte
/// changes everything that depends on it.
struct Record {
  std::vector<std::vector<std::uint64_t>> made;               ///< [instruction][batch]
  std::vector<std::vector<std::vector<std::uint64_t>>> read;  ///< [instruction][batch][operand]
  std::vector<std::uint64_t> states;  ///< contents of every state after the run is drained
  bool operator==(const Record&) const = default;
};

/// The oracle computes values as functions of instructions and batches. It keeps every version of every
/// state, and has no placement, no schedule, and no list order.
class Evaluation {
 public:
  Evaluation(const Program& program, std::int64_t batches);
  const Record& record() const { return record_; }
  /// The version of a state that has these contents; −1 if none does.
  std::int64_t version(BlockId state, std::uint64_t contents) const;

 private:
  std::uint64_t contents(MemberId member, std::int64_t batch);
  std::uint64_t version_contents(BlockId state, std::int64_t version);
  std::uint64_t run(InstructionId instruction, std::int64_t batch);

  const Program& program_;
  Record record_;
  std::vector<std::vector<char>> done_;               // [instruction][batch]
  std::vector<InstructionId> maker_;                  // per member
  std::vector<MemberId> assigned_;                    // per block: the member that an instruction writes
  std::vector<std::vector<std::uint64_t>> versions_;  // [block][version]
};

/// Gives every instruction an op whose kernel does what Record describes, and takes its time.
Program with_test_ops(Program program);

struct CpuRunOptions {
  bool poison = false;
  std::size_t spans = 0;  ///< per lane
};

/// Runs a planned Program on this machine: one thread per stage, one worker per lane, transfers between them.
class CpuRun {
 public:
  using Options = CpuRunOptions;
  explicit CpuRun(Program planned, Options options = {});
  ~CpuRun();

  /// Runs from fresh states, from empty to drained. Throws what the first failing stage threw.
  Record run(std::int64_t batches);
  /// The spans of all stages since the last call.
  Timeline timeline();
  std::int64_t executed_peak(int device) const;

 private:
  struct Stage;
  Program program_;
  std::vector<std::unique_ptr<Stage>> stages_;
};

/// The order in which every lane executed (instruction, batch).
std::vector<std::vector<std::pair<InstructionId, std::int64_t>>> lane_orders(const Timeline& timeline);

/// How many times a timeline shows an order that the Program fixes.
struct FixedOrders {
  int waits = 0;     ///< of an execution after one on another lane of its device
  int channels = 0;  ///< of the end of a receive or barrier after the begin of another end, on another device
};
/// Expects that a timeline of one run has every order between lanes and devices that the Program fixes.
FixedOrders expect_fixed_orders(const Program& program, const Timeline& timeline);

}  // namespace tandem::testing
