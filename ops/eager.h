#pragma once
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include <tandem/core/graph/graph.h>
#include <tandem/core/graph/tensor.h>
#include <tandem/core/graph/tensor_impl.h>

namespace tandem::engine {

class KernelTable;

/// What `apply_op` does outside a trace: runs the op on the CPU kernels (or EagerKernels), and keeps a
/// History where a gradient may be asked for.
Tensors apply_eager(OpPtr op, Tensors inputs);
/// Runs one op at once on a given backend's kernels, keeping no history.
Tensors evaluate(const KernelTable& kernels, const OpPtr& op, const Tensors& inputs, const Tag& tag = {});

}  // namespace tandem::engine

namespace tandem {

/// While it lives, eager ops on this thread belong to `batch`, or to one of its micro-batches: random draws
/// are those of it in a Program, and each module's calls are numbered from zero, as at the start of a trace.
class EagerBatch {
 public:
  explicit EagerBatch(std::int64_t batch, int microbatch = 0);
  ~EagerBatch();
  EagerBatch(const EagerBatch&) = delete;
  EagerBatch& operator=(const EagerBatch&) = delete;
  static std::int64_t current();

 private:
  std::int64_t outer_;
  int outer_microbatch_;
  std::unordered_map<std::string, int> outer_calls_;
};

}  // namespace tandem

namespace tandem::engine {

/// While it lives, eager ops on this thread, and their derivatives, run on these kernels, which must outlive
/// it.
class EagerKernels {
 public:
  explicit EagerKernels(const KernelTable& kernels);
  ~EagerKernels();
  EagerKernels(const EagerKernels&) = delete;
  EagerKernels& operator=(const EagerKernels&) = delete;
  static const KernelTable& current();

 private:
  const KernelTable* outer_;
};

}  // namespace tandem::engine

namespace tandem {

/// While it lives, eager ops on this thread keep no history.
class NoGrad {
 public:
  NoGrad();
  ~NoGrad();
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;

 private:
  bool outer_;
};

}  // namespace tandem

namespace tandem::engine {

/// How eager Tensors came to be; kept only where a gradient may be asked for.
struct History {
  History(OpPtr op, Tensors inputs, Tag tag, std::uint64_t order);
  ~History();
  History(const History&) = delete;
  History& operator=(const History&) = delete;

  OpPtr op;
  Tensors inputs;
  std::vector<std::uint64_t> versions;  ///< of the inputs' contents, when they were used
  Tensors outputs;  ///< the same buffers as the outputs', without their histories: no cycle
  Tag tag;
  std::int64_t batch = 0;   ///< that it belonged to (EagerBatch)
  std::uint64_t order = 0;  ///< of creation, so that a tape is differentiated as a trace would be
};

}  // namespace tandem::engine
