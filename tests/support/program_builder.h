#pragma once
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include <tandem/core/schedule/program.h>

namespace tandem::testing {
using namespace engine;

/// An id as an index of a vector.
inline std::size_t at(std::int64_t id) { return static_cast<std::size_t>(id); }

/// Builds a schedule instruction by instruction, in list order, as input for `planned`.
class ProgramBuilder {
 public:
  explicit ProgramBuilder(int devices = 1) { program_.devices = devices; }

  /// Adds the lane on the first call.
  LaneId lane(int device, LaneKind kind = LaneKind::compute, int index = 0);

  BlockId block(const std::string& name, int device, std::int64_t bytes, Arena arena = Arena::work);
  /// A value in its own block.
  MemberId value(const std::string& name, int device, std::int64_t bytes = 64, Arena arena = Arena::work);
  /// A value that is part of a block, or replaces another value in it.
  MemberId part(const std::string& name, BlockId block, std::int64_t offset, std::int64_t bytes);
  /// A value in the place of another value.
  MemberId over(const std::string& name, MemberId replaced);

  BlockId state(const std::string& path, int device, std::int64_t bytes = 64);
  /// Reads what batch b − age assigned.
  MemberId read(BlockId state, int age);
  MemberId assign(BlockId state);

  InstructionId add(Instruction instruction);
  /// A send and a receive of a value of another device. They share a channel.
  void transfer(const std::string& name, MemberId sent, MemberId received, int lag, double seconds);
  std::int64_t new_channel() { return channels_++; }

  Instruction& instruction(InstructionId s) { return program_.instruction(s); }
  BlockId block_of(MemberId m) const { return program_.member(m).block; }
  int device_of(MemberId m) const { return program_.block(block_of(m)).device; }
  Program& program() { return program_; }
  Program take() { return std::move(program_); }

 private:
  MemberId member(const std::string& name, BlockId block, std::int64_t offset, std::int64_t bytes, int shift);

  Program program_;
  std::map<std::tuple<int, LaneKind, int>, LaneId> lanes_;
  std::map<std::pair<BlockId, int>, MemberId> reads_;
  std::int64_t channels_ = 0;
};

/// Find by name. They throw Error if the name is missing.
InstructionId find_instruction(const Program& program, const std::string& name);
BlockId find_block(const Program& program, const std::string& name);
MemberId find_member(const Program& program, const std::string& name);
Instruction& instruction_named(Program& program, const std::string& name);
MemoryBlock& block_named(Program& program, const std::string& name);

bool is_state(const Program& program, MemberId member);

}  // namespace tandem::testing
