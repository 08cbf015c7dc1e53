#pragma once
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include <tandem/core/graph/graph.h>
#include <tandem/core/graph/scope.h>
#include <tandem/core/graph/tensor.h>
#include <tandem/core/graph/tensor_impl.h>

namespace tandem {

/// While an EagerBatch exists, eager ops on this thread belong to `batch` and `microbatch`: they draw the
/// same random numbers as a Program does for that batch, and each module's calls are numbered from zero, as
/// at the start of a trace.
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

class KernelTable;

/// Runs an op at once, on the CPU kernels unless EagerKernels names others; `apply_op` calls it outside a
/// trace. Records a History if an input needs a gradient and no NoGrad exists on this thread.
Tensors apply_eager(OpPtr op, Tensors inputs);
/// The same under a given tag.
Tensors apply_eager(OpPtr op, Tensors inputs, const Tag& tag);
/// Runs one op at once on the given kernels and records no History.
Tensors evaluate(const KernelTable& kernels, const OpPtr& op, const Tensors& inputs, const Tag& tag = {});

/// While an EagerKernels exists, eager ops on this thread and their derivatives run on `kernels`, which must
/// outlive it.
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

/// The op and the inputs that made an eager Tensor. Recorded only if an input needs a gradient.
struct History {
  History(OpPtr op, Tensors inputs, Tag tag, std::uint64_t order);
  ~History();
  History(const History&) = delete;
  History& operator=(const History&) = delete;

  OpPtr op;
  Tensors inputs;
  std::vector<std::uint64_t> versions;  ///< version of each input's contents when the op ran
  Tensors outputs;  ///< share the outputs' buffers but have no history, so that no ownership cycle forms
  Tag tag;
  std::int64_t batch = 0;   ///< the batch that the op belonged to (EagerBatch)
  std::uint64_t order = 0;  ///< number in order of creation: backward() sorts by it, as a trace is ordered
};

}  // namespace tandem::engine
