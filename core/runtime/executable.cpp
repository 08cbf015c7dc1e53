#include <tandem/core/runtime/executable.h>

#include <algorithm>
#include <cstring>
#include <set>

#include <fmt/format.h>

#include <tandem/core/base/error.h>
#include <tandem/core/base/team.h>
#include <tandem/core/runtime/comm.h>
#include <tandem/core/schedule/accesses.h>
#include <tandem/core/schedule/happens_before.h>

namespace tandem::engine {

void RankMemory::fit(const Program& program, int device) {
  std::map<std::string, MemoryBlock> states;
  for (const StateBlock& s : program.states) {
    const MemoryBlock& block = program.blocks.at(s.block);
    if (block.device != device) continue;
    states.emplace(s.path, block);
    const auto known = states_.find(s.path);
    if (known == states_.end()) continue;
    if (const MemoryBlock& b = known->second;
        b.bytes != block.bytes || b.offsets.at(0) != block.offsets.at(0))
      throw Error(fmt::format(
          "state '{}' has {} bytes at {} in one Program and {} bytes at {} in another; Programs that share "
          "state must place it alike on every device: trace them from one model and cut them at the same "
          "modules",
          s.path, b.bytes, b.offsets[0], block.bytes, block.offsets[0]));
  }
  states_.merge(states);
  const DeviceMemory& needed = program.memory.at(static_cast<std::size_t>(device));
  if (needed.work > work_.bytes() || needed.host > host_.bytes() || needed.state > state_.bytes())
    ++generation_;
  if (needed.work > work_.bytes()) work_ = Buffer(needed.work);
  if (needed.host > host_.bytes()) host_ = Buffer(needed.host);
  if (needed.state > state_.bytes()) {
    const Buffer larger(needed.state);
    if (state_.bytes() > 0)
      std::memcpy(larger.data(), state_.data(), static_cast<std::size_t>(state_.bytes()));
    state_ = larger;
  }
}

std::byte* RankMemory::base(Arena arena) const {
  switch (arena) {
    case Arena::work: return work_.data();
    case Arena::state: return state_.data();
    case Arena::host: return host_.data();
  }
  return nullptr;
}

std::span<std::byte> RankMemory::state(const Program& program, const StateBlock& state) const {
  const MemoryBlock& block = program.blocks.at(state.block);
  return {base(Arena::state) + block.offsets.at(0), static_cast<std::size_t>(block.bytes)};
}

Executable::Executable(Program program, const RankContext& rank, RankMemory& memory,
                       const KernelTable& kernels)
    : program_(std::move(program)), rank_(rank), memory_(memory), prepared_(program_.instructions.size()) {
  memory.fit(program_, rank.device);
  for (const InstructionId s : program_.instructions.ids()) prepare(s, kernels);
  for (const InstructionId s : program_.instructions.ids())
    if (const Instruction& instruction = program_.instruction(s); instruction.channel >= 0)
      prepared_[s].announced = program_.purpose.empty()
                                   ? instruction.name
                                   : fmt::format("{}'s {}", program_.purpose, instruction.name);
  std::set<BlockId> moving, updated;
  for (const StateBlock& state : program_.states)
    if (state.is_updated()) updated.insert(state.block);
  for (const Instruction& s : program_.instructions)
    for (MemberId m : s.writes)
      if (program_.block_of(m).slots > 1) moving.insert(program_.member(m).block);
  for (const InstructionId s : program_.instructions.ids())
    prepared_[s].updates = std::ranges::any_of(program_.instruction(s).writes, [&](MemberId m) {
      return updated.contains(program_.member(m).block);
    });
  for (const StateBlock& state : program_.states)
    if (moving.contains(state.block) && program_.block(state.block).device == rank_.device)
      moving_states_.push_back(state.block);
}

int Executable::threads(InstructionId s) const {
  return program_.lane_of(s).kind == LaneKind::compute ? program_.threads
                                                       : program_.instruction(s).tag.threads;
}

void Executable::set_threads(std::int64_t channel, int threads) {
  for (Instruction& s : program_.instructions)
    if (s.channel == channel && program_.lane(s.lane).kind == LaneKind::collective) s.tag.threads = threads;
}

std::byte* Executable::address(const Member& m, std::int64_t index) const {
  const MemoryBlock& b = program_.block(m.block);
  return memory_.base(b.arena) + b.offsets[b.slot(index)] + m.offset;
}

void Executable::touch(Prepared& p, const Member& m, std::int64_t index) const {
  const MemoryBlock& b = program_.block(m.block);
  const std::int64_t end = b.offsets[b.slot(index)] + align_up(m.offset + m.bytes);
  std::int64_t& touched = p.touched[static_cast<std::size_t>(b.arena)];
  touched = std::max(touched, end);
}

void Executable::prepare(InstructionId s, const KernelTable& kernels) {
  const Instruction& instruction = program_.instruction(s);
  Prepared& p = prepared_[s];
  if (instruction.op) {
    const TeamSize team(program_.lane_of(s).kind == LaneKind::compute ? program_.threads : 1);
    p.kernel =
        kernels.make({*instruction.op, instruction.inputs, instruction.outputs, instruction.tag, threads(s),
                      program_.microbatches, static_cast<std::uint64_t>(instruction.channel)});
    const std::int64_t planned =
        instruction.workspace() >= 0 ? program_.member(instruction.workspace()).bytes : 0;
    if (p.kernel->workspace() > planned)
      throw Error(fmt::format(
          "instruction '{}': the {} kernel needs {} bytes of scratch, {} were planned; plan and run with the same kernels",
          instruction.name, kernels.backend(), p.kernel->workspace(), planned));
  }
  p.in.resize(instruction.reads.size());
  p.out.resize(instruction.writes.size());
  const auto add = [&](const std::vector<MemberId>& members, bool output) {
    for (std::size_t i = 0; i < members.size(); ++i)
      if (program_.block_of(members[i]).slots > 1)
        p.moving.push_back({i, output, &program_.member(members[i])});
  };
  add(instruction.reads, false);
  add(instruction.writes, true);
}

// Resolves the addresses that do not depend on the batch. The others get those of index 0.
void Executable::bind(const Instruction& instruction, Prepared& p) const {
  const auto resolve = [&](MemberId m) {
    if (program_.block_of(m).slots == 1) touch(p, program_.member(m), 0);
    return address(program_.member(m), 0);
  };
  for (std::size_t i = 0; i < p.in.size(); ++i) p.in[i] = resolve(instruction.reads[i]);
  for (std::size_t i = 0; i < p.out.size(); ++i) p.out[i] = resolve(instruction.writes[i]);
  p.bound = memory_.generation();
}

void Executable::execute(InstructionId s, std::int64_t batch, double* met) {
  const Instruction& instruction = program_.instruction(s);
  Prepared& p = prepared_[s];
  if (p.bound != memory_.generation()) bind(instruction, p);
  for (const Moving& m : p.moving) {
    std::byte* const at = address(*m.member, m.member->index(batch));
    if (m.output)
      p.out[m.operand] = at;
    else
      p.in[m.operand] = at;
    touch(p, *m.member, m.member->index(batch));
  }
  if (!p.kernel) return;
  void* const workspace = instruction.workspace() >= 0 ? p.out.back() : nullptr;
  if (poison_) poison_before(instruction, p);
  if (instruction.channel >= 0 && rank_.comm)
    rank_.comm->announce(static_cast<std::uint64_t>(instruction.channel), first_batch_ + batch, p.announced);
  if (p.updates) updated_.store(true, std::memory_order_relaxed);
  p.kernel->run({p.in.data(), p.out.data(), workspace, first_batch_ + batch, &rank_, instruction.tag.threads,
                 met, first_batch_});
  if (poison_)
    for (MemberId m : p.last_use) {
      const Member& member = program_.member(m);
      engine::poison(address(member, member.index(batch)), member.bytes);
    }
}

void Executable::poison_before(const Instruction& instruction, const Prepared& p) const {
  for (std::size_t i = 0; i < p.out.size(); ++i) {
    const Member& out = program_.member(instruction.writes[i]);
    const bool replaces = std::ranges::any_of(instruction.reads, [&](MemberId m) {
      return program_.member(m).block == out.block && m != instruction.writes[i];
    });
    if (!replaces) engine::poison(p.out[i], out.bytes);
  }
}

void Executable::poison(bool on) {
  poison_ = on;
  for (Prepared& p : prepared_) p.last_use.clear();
  if (on) find_last_uses();
}

// Finds the last use of each member's bytes, if all other uses have certainly ended by then. Only overlapping
// members count: others of the same block can hold different batches at the same time.
void Executable::find_last_uses() {
  const HappensBefore order(program_);
  const auto accesses = accesses_by_block(program_);
  for (const MemberId m : program_.members.ids()) {
    const Member& member = program_.member(m);
    if (program_.block_of(m).arena == Arena::state) continue;
    std::vector<Access> uses = accesses[member.block];
    std::erase_if(uses, [&](const Access& a) { return !overlap(program_.member(a.member), member); });
    if (uses.empty()) continue;
    const Access& last = *std::ranges::max_element(uses, earlier);
    if (std::ranges::all_of(uses, [&](const Access& a) {
          return a.instruction == last.instruction ||
                 order.precedes(a.instruction, last.instruction, units_between(a, last));
        }))
      prepared_[last.instruction].last_use.push_back(m);
  }
}

void Executable::settle(std::int64_t batches) {
  for (const BlockId state : moving_states_) {
    const MemoryBlock& block = program_.block(state);
    const std::size_t slot = block.slot(batches);
    if (slot == 0) continue;
    std::byte* const base = memory_.base(Arena::state);
    std::memcpy(base + block.offsets[0], base + block.offsets[slot], static_cast<std::size_t>(block.bytes));
  }
}

std::int64_t Executable::touched(Arena arena) const {
  std::int64_t end = 0;
  for (const Prepared& p : prepared_) end = std::max(end, p.touched[static_cast<std::size_t>(arena)]);
  return end;
}

}  // namespace tandem::engine
