#include <tandem/core/schedule/program.h>

#include <algorithm>
#include <set>
#include <utility>

#include <fmt/format.h>

#include <tandem/core/base/memory.h>
#include <tandem/core/base/rng.h>

namespace tandem::engine {

std::string name_of(const Lane& lane, int devices) {
  std::string name(name_of(lane.kind));
  if (lane.kind == LaneKind::collective && lane.index > 0) name = "barrier";
  if (lane.kind == LaneKind::compute) name += fmt::format(" {}", lane.index);
  if (lane.kind == LaneKind::send) name += fmt::format(" to {}", lane.index);
  if (lane.kind == LaneKind::receive) name += fmt::format(" from {}", lane.index);
  return devices > 1 ? fmt::format("device {} {}", lane.device, name) : name;
}

std::string_view name_of(Arena arena) {
  switch (arena) {
    case Arena::work: return "work";
    case Arena::state: return "state";
    case Arena::host: return "host";
  }
  return "?";
}

bool StateBlock::is_updated() const { return trained || path.starts_with(kOptimizerPath); }

std::vector<StateId> written_states(const Program& program) {
  std::set<BlockId> written;
  for (const Instruction& s : program.instructions)
    for (MemberId m : s.writes) written.insert(program.member(m).block);
  std::vector<StateId> states;
  for (const StateId state : program.states.ids())
    if (written.contains(program.states[state].block)) states.push_back(state);
  return states;
}

int max_back(const Program& program) {
  int back = 0;
  for (const Instruction& s : program.instructions)
    for (const Wait& w : s.waits) back = std::max(back, w.back);
  return back;
}

Program project(Program program, int device) {
  auto all = std::exchange(program.instructions, {});
  IdVector<InstructionId, InstructionId>
      renumbered;  // where the instruction, or the next one of this device, is now
  for (const InstructionId s : all.ids()) {
    renumbered.push_back(program.instructions.next_id());
    if (program.lane(all[s].lane).device != device) continue;
    program.instructions.push_back(std::move(all[s]));
    program.instructions.back().origin = s;
  }
  for (Instruction& instruction : program.instructions)
    for (Wait& w : instruction.waits) w.instruction = renumbered[w.instruction];

  const auto before = static_cast<std::int64_t>(all.size()),
             after = static_cast<std::int64_t>(program.instructions.size());
  for (MemoryBlock& b : program.blocks)
    for (std::int64_t* position : {&b.begin, &b.end})
      *position =
          b.device == device && after > 0 ? *position / before * after + renumbered[*position % before] : 0;
  return program;
}

std::uint64_t hash(const Program& program) {
  std::uint64_t h = fnv1a("tandem program");
  const auto mix = [&h](const std::string& text) { h = fnv1a(text, h); };
  mix(fmt::format("{} {} {} {} {}", program.devices, program.replicas, program.microbatches, program.threads,
                  program.max_lag));
  for (const Lane& l : program.lanes) mix(fmt::format("l{} {} {}", l.device, int(l.kind), l.index));
  for (const MemoryBlock& b : program.blocks) {
    mix(fmt::format("b{} {} {} {}", b.device, int(b.arena), b.bytes, b.slots));
    for (auto o : b.offsets) mix(fmt::format(" {}", o));
  }
  for (const Member& m : program.members)
    mix(fmt::format("m{} {} {} {}", m.block, m.offset, m.bytes, m.shift));
  for (const StateBlock& s : program.states)
    mix(fmt::format("v{} {} {}", s.path, to_string(s.type), s.block));
  for (const Instruction& s : program.instructions) {
    mix(fmt::format("s{} {} {} {} {} {} {} {} {}", s.name, s.lane, s.lag, s.channel, s.in_place, s.barrier,
                    s.tag.microbatch, s.tag.rng_id, s.tag.threads));
    for (const TensorType& t : s.outputs) mix(to_string(t));
    if (s.op) mix(signature(*s.op, s.inputs));
    for (const Wait& w : s.waits) mix(fmt::format("w{} {}", w.instruction, w.back));
    for (MemberId m : s.reads) mix(fmt::format("r{}", m));
    for (MemberId m : s.writes) mix(fmt::format("o{}", m));
  }
  return h;
}

std::int64_t planned_peak(const Program& program, int device) {
  const auto& m = program.memory.at(static_cast<std::size_t>(device));
  return m.work + m.state;
}

std::int64_t planned_peak(const Program& program) {
  std::int64_t peak = 0;
  for (int device = 0; device < program.devices; ++device)
    peak = std::max(peak, planned_peak(program, device));
  return peak;
}

std::int64_t live_peak(const Program& program) {
  std::int64_t peak = 0;
  for (const DeviceMemory& m : program.memory) peak = std::max(peak, m.state + m.live_peak);
  return peak;
}

std::vector<std::int64_t> live_bytes(const Program& program, int device) {
  const auto n = static_cast<std::int64_t>(program.instructions.size());
  if (n == 0) return {};
  std::vector<std::int64_t> change(program.instructions.size() + 1, 0);
  for (const MemoryBlock& block : program.blocks) {
    if (block.device != device || block.arena != Arena::work || block.end <= block.begin) continue;
    const std::int64_t length = block.end - block.begin;
    const std::int64_t from = (block.begin % n + n) % n;
    const std::int64_t rest = length % n;
    const auto add = [&](std::int64_t a, std::int64_t b, std::int64_t bytes) {
      change[a] += bytes;
      change[b] -= bytes;
    };
    add(0, n, length / n * align_up(block.bytes));
    add(from, std::min(from + rest, n), align_up(block.bytes));
    if (from + rest > n) add(0, from + rest - n, align_up(block.bytes));
  }
  std::vector<std::int64_t> live;
  std::int64_t sum = 0;
  for (std::int64_t i = 0; i < n; ++i) live.push_back(sum += change[i]);
  return live;
}

}  // namespace tandem::engine
