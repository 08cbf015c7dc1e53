#pragma once
#include <tandem/core/graph/op.h>
#include <tandem/core/graph/tensor.h>

namespace tandem::engine {

class KernelTable;

/// Copies a value to host memory (the host arena). A swap keeps this copy while it reuses the device memory.
/// The output has the input's type and elements.
class CopyOutOp final : public StreamingOp {
 public:
  std::string_view name() const override { return "copy_out"; }
  Types infer(TypesView inputs) const override;
  Tensors vjp(const VjpArgs& args) const override { return {args.grads[0]}; }
  Tensors vmap(const VmapArgs& args) const override;
  LaneKind lane() const override { return LaneKind::copy_out; }
};

/// Copies a host copy back: the output is a new value in device memory, equal to the host copy.
class CopyInOp final : public StreamingOp {
 public:
  std::string_view name() const override { return "copy_in"; }
  Types infer(TypesView inputs) const override;
  Tensors vjp(const VjpArgs& args) const override { return {args.grads[0]}; }
  Tensors vmap(const VmapArgs& args) const override;
  LaneKind lane() const override { return LaneKind::copy_in; }
};

/// Copies a value on the compute lane. Buffer assignment inserts it if a value must lie in two places.
class CopyOp final : public StreamingOp {
 public:
  std::string_view name() const override { return "copy"; }
  Types infer(TypesView inputs) const override;
  Tensors vjp(const VjpArgs& args) const override { return {args.grads[0]}; }
  Tensors vmap(const VmapArgs& args) const override;
  std::vector<Alias> may_alias(TypesView) const override { return {}; }
};

/// Apply CopyOutOp and CopyInOp.
Tensor copy_out(const Tensor& value);
Tensor copy_in(const Tensor& host_copy);

/// Adds the kernels of these ops for backends whose device memory is host memory: memcpy, which bypasses the
/// caches if a copy is larger than the caches.
void add_copy_kernels(KernelTable& table);

}  // namespace tandem::engine
