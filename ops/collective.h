#pragma once
#include <string>

#include <tandem/core/graph/op.h>
#include <tandem/core/graph/tensor.h>

namespace tandem::engine {

class KernelTable;

/// Sums k values over the replicas of a stage: ranks replica · stages + stage, for every replica. All k are
/// of one element type that ranks can sum (f32, f64, i32, i64), and lie one after another in memory
/// (`joins_operands`), so that one call reduces them. Every element is the left fold in replica
/// order.
class AllReduceOp final : public Op {
 public:
  explicit AllReduceOp(int replicas);
  std::string_view name() const override { return "all_reduce"; }
  std::string attributes() const override;
  Types infer(std::span<const TensorType> inputs) const override;
  /// A sum over ranks, where every rank's loss counts: the gradients are summed over the same ranks.
  Tensors vjp(const VjpArgs& args) const override;
  Tensors vmap(const VmapArgs& args) const override;
  /// flops: replicas − 1 additions an element; bytes: what memory sees. What the link sees: dist/link.h.
  Work cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const override;
  std::vector<Alias> may_alias(std::span<const TensorType> inputs) const override;
  LaneKind lane() const override { return LaneKind::collective; }
  bool joins_operands() const override { return true; }

  const int replicas;
};

/// Sends its input to stage `peer_stage` of the same replica.
class SendOp final : public Op {
 public:
  explicit SendOp(int peer_stage) : peer_stage(peer_stage) {}
  std::string_view name() const override { return "send"; }
  std::string attributes() const override;
  Types infer(std::span<const TensorType> inputs) const override;
  Tensors vjp(const VjpArgs&) const override;
  Tensors vmap(const VmapArgs& args) const override;
  Work cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const override;
  std::vector<Alias> may_alias(std::span<const TensorType>) const override { return {}; }
  LaneKind lane() const override { return LaneKind::send; }
  int lane_index() const override { return peer_stage; }

  const int peer_stage;
};

/// The value that stage `peer_stage` of the same replica sends.
class ReceiveOp final : public Op {
 public:
  ReceiveOp(int peer_stage, TensorType type) : peer_stage(peer_stage), type(std::move(type)) {}
  std::string_view name() const override { return "receive"; }
  std::string attributes() const override;
  Types infer(std::span<const TensorType> inputs) const override;
  Tensors vjp(const VjpArgs&) const override;
  Tensors vmap(const VmapArgs& args) const override;
  Work cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const override;
  std::vector<Alias> may_alias(std::span<const TensorType>) const override { return {}; }
  LaneKind lane() const override { return LaneKind::receive; }
  int lane_index() const override { return peer_stage; }

  const int peer_stage;
  const TensorType type;
};

/// The ranks of a replica meet: on each of them, what is listed before it ends before it, and what is listed
/// after it begins after it, on all lanes.
class BarrierOp final : public Op {
 public:
  std::string_view name() const override { return "barrier"; }
  Types infer(std::span<const TensorType> inputs) const override;
  Tensors vjp(const VjpArgs&) const override { return {}; }
  Tensors vmap(const VmapArgs& args) const override;
  Work cost(std::span<const TensorType>, std::span<const TensorType>) const override { return {}; }
  std::vector<Alias> may_alias(std::span<const TensorType>) const override { return {}; }
  LaneKind lane() const override { return LaneKind::collective; }
  bool is_barrier() const override { return true; }
};

/// Applies AllReduce.
Tensors all_reduce(const Tensors& values, int replicas);
/// Applies Send.
void send(const Tensor& value, int peer_stage);
/// Applies Receive.
Tensor receive(int peer_stage, TensorType type);
/// Applies Barrier.
void barrier();

/// Kernels of these ops over Launch.rank->comm: the same on every backend whose values lie in host memory.
void add_collective_kernels(KernelTable& table);

}  // namespace tandem::engine
