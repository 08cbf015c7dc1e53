#include "program_builder.h"

#include <fmt/format.h>

#include <tandem/core/base/error.h>

namespace tandem::testing {
using namespace engine;

LaneId ProgramBuilder::lane(int device, LaneKind kind, int index) {
  const auto [found, fresh] = lanes_.try_emplace({device, kind, index}, program_.lanes.next_id());
  if (fresh) program_.lanes.push_back({device, kind, index});
  return found->second;
}

BlockId ProgramBuilder::block(const std::string& name, int device, std::int64_t bytes, Arena arena) {
  program_.blocks.push_back({name, device, arena, bytes});
  return program_.blocks.next_id() - 1;
}

MemberId ProgramBuilder::member(const std::string& name, BlockId block, std::int64_t offset,
                                std::int64_t bytes, int shift) {
  program_.members.push_back({name, block, offset, bytes, shift});
  return program_.members.next_id() - 1;
}

MemberId ProgramBuilder::value(const std::string& name, int device, std::int64_t bytes, Arena arena) {
  return member(name, block(name, device, bytes, arena), 0, bytes, 0);
}

MemberId ProgramBuilder::part(const std::string& name, BlockId block, std::int64_t offset,
                              std::int64_t bytes) {
  return member(name, block, offset, bytes, 0);
}

MemberId ProgramBuilder::over(const std::string& name, MemberId replaced) {
  const Member other = program_.member(replaced);
  return member(name, other.block, other.offset, other.bytes, other.shift);
}

BlockId ProgramBuilder::state(const std::string& path, int device, std::int64_t bytes) {
  const BlockId id = block(path, device, bytes, Arena::state);
  StateBlock state{.path = path, .block = id, .trained = true};
  state.type = {DType::u8, Shape{bytes}};
  program_.states.push_back(std::move(state));
  return id;
}

MemberId ProgramBuilder::read(BlockId state, int age) {
  const auto found = reads_.find({state, age});
  if (found != reads_.end()) return found->second;
  const MemoryBlock& block = program_.block(state);
  const MemberId m = member(fmt::format("{}@{}", block.name, age), state, 0, block.bytes, 1 - age);
  reads_[{state, age}] = m;
  return m;
}

MemberId ProgramBuilder::assign(BlockId state) {
  const MemoryBlock& block = program_.block(state);
  return member(block.name + "'", state, 0, block.bytes, 1);
}

InstructionId ProgramBuilder::add(Instruction instruction) {
  program_.instructions.push_back(std::move(instruction));
  return program_.instructions.next_id() - 1;
}

void ProgramBuilder::transfer(const std::string& name, MemberId sent, MemberId received, int lag,
                              double seconds) {
  const int from = device_of(sent), to = device_of(received);
  const std::int64_t channel = new_channel();
  add({.name = "send " + name,
       .lane = lane(from, LaneKind::send, to),
       .lag = lag,
       .reads = {sent},
       .channel = channel,
       .cost = {seconds}});
  add({.name = "receive " + name,
       .lane = lane(to, LaneKind::receive, from),
       .lag = lag,
       .writes = {received},
       .channel = channel,
       .cost = {seconds}});
}

namespace {
template <class T> std::int32_t find(const std::vector<T>& all, const std::string& name, const char* what) {
  for (std::size_t i = 0; i < all.size(); ++i)
    if (all[i].name == name) return static_cast<std::int32_t>(i);
  throw Error(fmt::format("there is no {} '{}'", what, name));
}
}  // namespace

InstructionId find_instruction(const Program& program, const std::string& name) {
  return find(program.instructions, name, "instruction");
}
BlockId find_block(const Program& program, const std::string& name) {
  return find(program.blocks, name, "block");
}
MemberId find_member(const Program& program, const std::string& name) {
  return find(program.members, name, "value");
}
Instruction& instruction_named(Program& program, const std::string& name) {
  return program.instruction(find_instruction(program, name));
}
MemoryBlock& block_named(Program& program, const std::string& name) {
  return program.block(find_block(program, name));
}

bool is_state(const Program& program, MemberId member) {
  const Member& m = program.member(member);
  return program.block(m.block).arena == Arena::state;
}

}  // namespace tandem::testing
