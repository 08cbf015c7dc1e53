#pragma once
#include <cstdint>

#include <tandem/core/runtime/run_limit.h>
#include <tandem/core/schedule/program.h>

namespace tandem::engine {

/// Executes a Program on lanes, each of which executes its commands in order. Calls only enqueue commands;
/// `flush` returns when all of them have ended.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual const Program& program() const = 0;
  /// Nothing issued to `lane` from here on starts before `instruction` of `unit` has ended.
  virtual void wait(LaneId lane, InstructionId instruction, std::int64_t unit) = 0;
  /// Executes an instruction in `unit`, on `batch` counted from the start of the run. With batch −1 it
  /// executes nothing, but still ends in its turn.
  virtual void issue(InstructionId instruction, std::int64_t unit, std::int64_t batch) = 0;
  /// True once an instruction has failed: instructions issued from here on execute nothing.
  virtual bool failed() const { return false; }
  /// Throws what the first failing instruction threw.
  virtual void flush() = 0;
};

/// Runs a Program from empty to drained on `batches` batches. It drives all backends: the order simulated is
/// the order executed. With a limit, whose batches count from `first`, it may end earlier.
void run(Backend& backend, std::int64_t batches, const RunLimit* limit = nullptr, std::int64_t first = 0);

}  // namespace tandem::engine
