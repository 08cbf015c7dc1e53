#pragma once
#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <tandem/core/graph/kernel.h>

namespace tandem::testing {
using namespace engine;

/// What one instruction did in the current run, by batch. Rows are resized between runs; an instruction
/// writes only its own.
struct InstructionLog {
  std::vector<std::uint64_t> made;
  std::vector<std::vector<std::uint64_t>> read;
};

/// An instruction of a Program without a model, for tests. `make` hashes its inputs and fills its outputs.
class TestOp final : public Op {
 public:
  enum class Kind { make, send, receive, meet };
  TestOp(Kind kind, std::string instruction, int peer, InstructionLog* log)
      : kind(kind), instruction(std::move(instruction)), peer(peer), log(log) {}

  std::string_view name() const override { return "test"; }
  std::string attributes() const override { return "instruction=" + instruction; }
  Types infer(std::span<const TensorType>) const override { return {}; }
  Tensors vjp(const VjpArgs&) const override;
  Tensors vmap(const VmapArgs&) const override;
  Work cost(std::span<const TensorType>, std::span<const TensorType>) const override { return {}; }
  std::vector<Alias> may_alias(std::span<const TensorType>) const override { return {}; }

  const Kind kind;
  const std::string instruction;
  const int peer;  ///< device at the other end of a transfer
  InstructionLog* const log;
};

/// The kernels of TestOp.
const KernelTable& test_kernels();
/// Kernels of TestOp that do nothing.
const KernelTable& idle_kernels();

/// Hash of some bytes.
std::uint64_t hash_bytes(std::span<const std::byte> bytes);
/// Fills bytes as an instruction does whose output has this hash.
void fill_bytes(std::span<std::byte> bytes, std::uint64_t hash);
/// The hash that fills output `o` of an instruction.
std::uint64_t output_hash(std::uint64_t made, std::size_t o);
/// The hash that an instruction makes from its inputs.
std::uint64_t made_hash(const std::string& instruction, std::int64_t batch,
                        std::span<const std::uint64_t> read);

}  // namespace tandem::testing
