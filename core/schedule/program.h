#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include <tandem/core/base/types.h>
#include <tandem/core/graph/graph.h>
#include <tandem/core/graph/op.h>

namespace tandem::engine {

class KernelTable;

using InstructionId = Id<struct Instruction>;  ///< position in the list order
using LaneId = Id<struct Lane>;
using BlockId = Id<struct MemoryBlock>;
using MemberId = Id<struct Member>;

/// An in-order queue of one device: a CUDA stream, a CPU worker, or a simulated clock.
struct Lane {
  int device = 0;
  LaneKind kind = LaneKind::compute;
  int index = 0;  ///< number of a compute lane; peer device of a send or receive lane
};
/// Returns the title of the lane's track in a timeline: "device 1 send to 2", "compute 0".
std::string name_of(const Lane& lane, int devices);

enum class Arena : std::uint8_t { work, state, host };
std::string_view name_of(Arena arena);

/// The unit of memory placement: values joined by aliasing or contiguity. Each slot is one copy of the block;
/// slot k lies at offsets[k]. Index n (a batch number, or a state's version) uses slot n mod slots.
struct MemoryBlock {
  std::string name{};
  int device = 0;
  Arena arena = Arena::work;
  std::int64_t bytes = 0;
  int slots = 1;
  std::vector<std::int64_t> offsets{};  ///< empty until placed
  /// Lifetime of index 0 in the cyclic list order: the list positions of its first write and of its release,
  /// counted from unit 0 (they can exceed one unit).
  std::int64_t begin = 0, end = 0;

  std::size_t slot(std::int64_t index) const { return static_cast<std::size_t>(index % slots); }
};

/// A value's place in its block. An instruction that works on batch b touches index max(0, b + shift): shift
/// is 0 for ordinary values, 1 − age for reads of state, and 1 for the value that a batch assigns to a state
/// (version b + 1; version 0 is the state at the start of the run).
struct Member {
  std::string name{};
  BlockId block = -1;
  std::int64_t offset = 0;
  std::int64_t bytes = 0;
  int shift = 0;

  std::int64_t index(std::int64_t batch) const { return batch + shift < 0 ? 0 : batch + shift; }
};

/// A wait of one instruction for another: in unit u the waiting one starts after `instruction` of unit
/// u − back has ended, which is on another lane of the same device.
struct Wait {
  InstructionId instruction = -1;
  int back = 0;
  bool operator==(const Wait&) const = default;
};

/// The cost of an instruction in the simulator (sim_backend.h).
struct Cost {
  double seconds = 0;      ///< alone on its device
  double own_rate = 1;     ///< communication and copies: their rate beside a computation
  double others_rate = 1;  ///< communication and copies: the rate of a computation beside them
};

/// The execution of a node. Instructions of a Program from JSON execute nothing.
struct Instruction {
  std::string name{};
  LaneId lane = -1;
  int lag = 0;
  std::vector<Wait> waits{};
  std::vector<MemberId> reads{};   ///< one per op input
  std::vector<MemberId> writes{};  ///< one per op output, then the workspace, if any
  std::int64_t channel = -1;       ///< shared by the ends of one transfer or collective, which run together
  Cost cost{};
  OpPtr op{};  ///< null in a Program from JSON
  Types inputs{}, outputs{};
  Tag tag{};
  bool in_place = false;  ///< may read and write the same bytes
  /// On the compute lanes of its device, instructions listed before it end first, and those after it begin
  /// later.
  bool barrier = false;
  InstructionId origin = -1;  ///< in a projection: the list position in the global Program

  /// Returns the member that is the scratch of an instruction with an op, or −1.
  MemberId workspace() const { return writes.size() > outputs.size() ? writes.back() : MemberId(); }
};

/// Returns the instruction's op as a `T`, or null if it is of another class or missing.
template <class T> const T* as(const Instruction& instruction) {
  return dynamic_cast<const T*>(instruction.op.get());
}

/// A State's memory.
struct StateBlock {
  std::string path{};
  TensorType type{};
  BlockId block = -1;
  bool trained = false;
  /// Returns whether updates change it: it is trained, or the optimizer's.
  bool is_updated() const;
};

/// The memory that a device needs, in bytes: extents of its arenas, and the peak of the live-bytes curve.
struct DeviceMemory {
  std::int64_t work = 0, state = 0, host = 0;
  std::int64_t live_peak = 0;  ///< of the work arena, by lifetimes
};

/// The body of a loop over units u = 0, 1, …: every instruction's lane, waits, cost and placement.
/// `instructions` is the total list order. An instruction with lag d works in unit u on batch u − d and is
/// active while that batch exists; an inactive instruction launches nothing but still waits and signals. The
/// global Program covers all stages of one replica; identical replicas are stored once.
struct Program {
  int devices = 1;
  int replicas = 1;
  int microbatches = 1;
  int threads = 1;                       ///< team size of a compute lane, for which workspaces were sized
  const KernelTable* kernels = nullptr;  ///< whose workspaces it has; null if it was read from a file
  int max_lag = 0;
  std::string purpose{};  ///< such as "evaluation", for messages about its batches; empty: training
  /// ρ of each device, 1 if it is missing: k computations side by side each run at rate 1/(kρ).
  std::vector<double> corun{};
  bool duplex = true;  ///< false: transfers between two devices that meet share the rate of one
  IdVector<LaneId, Lane> lanes{};
  IdVector<BlockId, MemoryBlock> blocks{};
  IdVector<MemberId, Member> members{};
  IdVector<InstructionId, Instruction> instructions{};
  IdVector<StateId, StateBlock> states{};
  std::vector<DeviceMemory> memory{};  ///< per device

  Instruction& instruction(InstructionId s) { return instructions[s]; }
  const Instruction& instruction(InstructionId s) const { return instructions[s]; }
  MemoryBlock& block(BlockId b) { return blocks[b]; }
  const MemoryBlock& block(BlockId b) const { return blocks[b]; }
  Member& member(MemberId m) { return members[m]; }
  const Member& member(MemberId m) const { return members[m]; }
  const MemoryBlock& block_of(MemberId m) const { return block(member(m).block); }
  const Lane& lane(LaneId l) const { return lanes[l]; }
  LaneId lane_id(InstructionId s) const { return instruction(s).lane; }
  const Lane& lane_of(InstructionId s) const { return lane(lane_id(s)); }
  double corun_of(int device) const {
    const auto d = static_cast<std::size_t>(device);
    return d < corun.size() ? corun[d] : 1;
  }
  int ranks() const { return replicas * devices; }
  std::int64_t units(std::int64_t batches) const { return batches == 0 ? 0 : batches + max_lag; }
};

/// Returns the largest `Wait::back`.
int max_back(const Program& program);

/// Returns the states that instructions write.
std::vector<StateId> written_states(const Program& program);

/// Returns what one rank runs: the instructions of its stage. Lanes, blocks and members keep their ids;
/// lifetimes count its own instructions.
Program project(Program program, int device);

/// FNV-1a over everything that ranks must agree on: instructions, lanes, waits, slots and placement.
std::uint64_t hash(const Program& program);

/// Returns the bytes of a device's state and work arenas together. Memory budgets limit this sum.
std::int64_t planned_peak(const Program& program, int device);
/// Returns the largest such sum of all devices, and the largest peak of state and live work.
std::int64_t planned_peak(const Program& program);
std::int64_t live_peak(const Program& program);

/// Returns the bytes of live work blocks at each list position of a device, in the steady state.
std::vector<std::int64_t> live_bytes(const Program& program, int device);

}  // namespace tandem::engine
