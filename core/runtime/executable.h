#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <tandem/core/base/memory.h>
#include <tandem/core/graph/kernel.h>
#include <tandem/core/schedule/program.h>

namespace tandem::engine {

/// The arenas of one rank. State outlives Programs; the work and host arenas are as large as the largest
/// Program needs.
class RankMemory {
 public:
  /// Enlarges arenas that are too small for a device's part of the Program. State keeps its contents, but
  /// addresses change. Throws Error naming a state whose place or size differs from earlier Programs.
  void fit(const Program& program, int device);
  /// Increases whenever addresses change.
  std::int64_t generation() const { return generation_; }
  std::byte* base(Arena arena) const;

  /// The current value (version 0 while drained) of a state.
  std::span<std::byte> state(const Program& program, const StateBlock& state) const;

 private:
  Buffer work_, state_, host_;
  std::map<std::string, MemoryBlock> states_;  // by path, as the first Program that had it placed it
  std::int64_t generation_ = 0;
};

/// The prepared instructions of one rank: kernels are made, and addresses that do not depend on the batch are
/// resolved. Several Executables can share one RankMemory if they take turns.
class Executable {
 public:
  /// `program` is a projection on `rank.device`; `memory` must outlive this. Throws Error if a kernel of
  /// `kernels` needs more scratch than was planned for it.
  Executable(Program program, const RankContext& rank, RankMemory& memory, const KernelTable& kernels);

  const Program& program() const { return program_; }
  const RankContext& rank() const { return rank_; }
  /// Returns how many threads work on an instruction: the team of a compute lane, or Tag::threads.
  int threads(InstructionId instruction) const;
  /// Sets how many threads work on a collective from now on, in place of Tag::threads. Call it between runs.
  void set_threads(std::int64_t channel, int threads);
  /// Sets the number of the run's first batch, from which the batch numbers of kernels count.
  void start_at(std::int64_t first_batch) {
    first_batch_ = first_batch;
    updated_ = false;
  }
  std::int64_t first_batch() const { return first_batch_; }

  /// Executes an instruction on the calling thread. `batch` counts from the start of the run. A collective
  /// sets `met` (Launch::met).
  void execute(InstructionId instruction, std::int64_t batch, double* met = nullptr);

  /// If on, fills an instruction's outputs and scratch with NaN before it runs, and afterwards the bytes that
  /// it is certainly the last to use.
  void poison(bool on);

  /// Makes the current version of every state version 0. Call it when the Program is drained.
  void settle(std::int64_t batches);

  /// Returns whether an instruction began since `start_at` that changes a trained state, or the optimizer's.
  bool updated() const { return updated_; }
  /// The highest byte of the work or state arena that executed instructions touched.
  std::int64_t touched(Arena arena) const;
  std::int64_t executed_peak() const { return touched(Arena::work) + touched(Arena::state); }

 private:
  // An operand whose address depends on the batch.
  struct Moving {
    std::size_t operand;
    bool output;
    const Member* member;
  };
  struct Prepared {
    KernelPtr kernel;
    std::vector<const void*> in;
    std::vector<void*> out;
    std::vector<Moving> moving;
    std::string announced{};                // the name of a collective or transfer for RankContext::comm
    bool updates = false;                   // writes a state that is trained, or the optimizer's
    std::int64_t bound = -1;                // the memory's generation that the other addresses belong to
    std::array<std::int64_t, 3> touched{};  // per arena: highest end, over all slots used so far
    std::vector<MemberId> last_use;         // whose bytes are poisoned afterwards
  };

  void prepare(InstructionId s, const KernelTable& kernels);
  void bind(const Instruction& instruction, Prepared& p) const;
  void touch(Prepared& p, const Member& m, std::int64_t index) const;
  std::byte* address(const Member& m, std::int64_t index) const;
  void poison_before(const Instruction& instruction, const Prepared& p) const;
  void find_last_uses();

  Program program_;
  RankContext rank_;
  RankMemory& memory_;
  std::int64_t first_batch_ = 0;
  std::atomic<bool> updated_ = false;
  bool poison_ = false;
  IdVector<InstructionId, Prepared> prepared_;
  std::vector<BlockId> moving_states_;  // this device's assigned states with several slots
};

}  // namespace tandem::engine
