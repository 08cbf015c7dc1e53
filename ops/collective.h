#pragma once
#include <string>

#include <tandem/ops/apply.h>

namespace tandem::engine {

class KernelTable;

/// Sums k values over the replicas of a device: ranks replica · devices + device, for every replica. All k
/// have one dtype that ranks can sum (f32, f64, i32, i64) and lie one after another in memory
/// (`joins_operands`), so that one call reduces them. Every element is added in the order of the replicas.
class AllReduceOp final : public Op {
 public:
  explicit AllReduceOp(int replicas);
  std::string_view name() const override { return "all_reduce"; }
  std::string attributes() const override;
  Types infer(TypesView inputs) const override;
  /// Sums the gradients over the same ranks, because the loss of every rank counts.
  Tensors vjp(const VjpArgs& args) const override;
  Tensors vmap(const VmapArgs& args) const override;
  /// flops: replicas − 1 additions per element; bytes: memory traffic. dist/link.h computes link traffic.
  Work cost(TypesView inputs, TypesView outputs) const override;
  std::vector<Alias> may_alias(TypesView inputs) const override;
  LaneKind lane() const override { return LaneKind::collective; }
  bool joins_operands() const override { return true; }

  const int replicas;
};

/// Gives every replica of a device the values of all: each value (…) becomes (replicas, …), in the order of
/// the replicas.
class AllGatherOp final : public Op {
 public:
  explicit AllGatherOp(int replicas);
  std::string_view name() const override { return "all_gather"; }
  std::string attributes() const override;
  Types infer(TypesView inputs) const override;
  Tensors vjp(const VjpArgs&) const override;
  Tensors vmap(const VmapArgs& args) const override;
  Work cost(TypesView inputs, TypesView outputs) const override;
  std::vector<Alias> may_alias(TypesView) const override { return {}; }
  LaneKind lane() const override { return LaneKind::collective; }

  const int replicas;
};

/// Sends its input to device `peer_device` of the same replica.
class SendOp final : public StreamingOp {
 public:
  explicit SendOp(int peer_device) : peer_device(peer_device) {}
  std::string_view name() const override { return "send"; }
  std::string attributes() const override;
  Types infer(TypesView inputs) const override;
  Tensors vjp(const VjpArgs&) const override;
  Tensors vmap(const VmapArgs& args) const override { return apply_op(*this, args.inputs); }
  LaneKind lane() const override { return LaneKind::send; }
  int lane_index() const override { return peer_device; }

  const int peer_device;
};

/// Receives the value that device `peer_device` of the same replica sends.
class ReceiveOp final : public StreamingOp {
 public:
  ReceiveOp(int peer_device, TensorType type) : peer_device(peer_device), type(std::move(type)) {}
  std::string_view name() const override { return "receive"; }
  std::string attributes() const override;
  Types infer(TypesView inputs) const override;
  Tensors vjp(const VjpArgs&) const override;
  Tensors vmap(const VmapArgs& args) const override;
  LaneKind lane() const override { return LaneKind::receive; }
  int lane_index() const override { return peer_device; }

  const int peer_device;
  const TensorType type;
};

/// Makes all ranks of a replica wait for each other. On each rank, what its compute lanes list before the
/// barrier ends before it, and what they list after it begins after it. It has a lane of its own, so
/// transfers and all-reduces cross it.
class BarrierOp final : public Op {
 public:
  std::string_view name() const override { return "barrier"; }
  Types infer(TypesView inputs) const override;
  Tensors vjp(const VjpArgs&) const override { return {}; }
  Tensors vmap(const VmapArgs& args) const override { return apply_op(*this, args.inputs); }
  Work cost(TypesView, TypesView) const override { return {}; }
  std::vector<Alias> may_alias(TypesView) const override { return {}; }
  LaneKind lane() const override { return LaneKind::collective; }
  int lane_index() const override { return 1; }
  bool is_barrier() const override { return true; }
};

/// Apply the ops above.
Tensors all_reduce(const Tensors& values, int replicas);
Tensors all_gather(const Tensors& values, int replicas);
void send(const Tensor& value, int peer_device);
Tensor receive(int peer_device, TensorType type);
void barrier();

/// Adds the kernels of these ops, which call Launch.rank->comm, for backends with values in host memory.
void add_collective_kernels(KernelTable& table);

}  // namespace tandem::engine
