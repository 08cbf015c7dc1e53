#pragma once
#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <tandem/core/graph/kernel.h>

namespace tandem::testing {
using namespace engine;

/// What one step did in the run under way, by batch. Rows are resized between runs; a step writes its own
/// only.
struct StepLog {
  std::vector<std::uint64_t> made;
  std::vector<std::vector<std::uint64_t>> read;
};

/// A step of a Program without a model, for tests. `make` hashes what it reads and fills what it writes.
class TestOp final : public Op {
 public:
  enum class Kind { make, send, receive, meet };
  TestOp(Kind kind, std::string step, int peer, StepLog* log)
      : kind(kind), step(std::move(step)), peer(peer), log(log) {}

  std::string_view name() const override { return "test"; }
  std::string attributes() const override { return "step=" + step; }
  Types infer(std::span<const TensorType>) const override { return {}; }
  Tensors vjp(const VjpArgs&) const override;
  Tensors vmap(const VmapArgs&) const override;
  Work cost(std::span<const TensorType>, std::span<const TensorType>) const override { return {}; }
  std::vector<Alias> may_alias(std::span<const TensorType>) const override { return {}; }

  const Kind kind;
  const std::string step;
  const int peer;  ///< device at the other end of a transfer
  StepLog* const log;
};

/// The kernels of TestOp.
const KernelTable& test_kernels();
/// Kernels for it that do nothing.
const KernelTable& idle_kernels();

/// Hash of some bytes.
std::uint64_t hash_bytes(std::span<const std::byte> bytes);
/// Fills bytes as a step does whose output has this hash.
void fill_bytes(std::span<std::byte> bytes, std::uint64_t hash);
/// The hash that a step's output `o` is filled with.
std::uint64_t output_hash(std::uint64_t made, std::size_t o);
/// What a step makes of what it has read.
std::uint64_t made_hash(const std::string& step, std::int64_t batch, std::span<const std::uint64_t> read);

}  // namespace tandem::testing
