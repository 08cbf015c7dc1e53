#pragma once
#include <tandem/core/graph/op.h>
#include <tandem/core/graph/tensor.h>

namespace tandem::engine {

class KernelTable;

/// A copy of a value in host memory (the host arena): what a swap keeps while the device's memory is reused.
/// Mathematically the identity. Same type in and out.
class CopyOutOp final : public Op {
 public:
  std::string_view name() const override { return "copy_out"; }
  Types infer(std::span<const TensorType> inputs) const override;
  Tensors vjp(const VjpArgs& args) const override { return {args.grads[0]}; }
  Tensors vmap(const VmapArgs& args) const override;
  Work cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const override;
  std::vector<Alias> may_alias(std::span<const TensorType>) const override { return {}; }
  LaneKind lane() const override { return LaneKind::copy_out; }
};

/// The way back: a new value in the device's memory, equal to the host copy.
class CopyInOp final : public Op {
 public:
  std::string_view name() const override { return "copy_in"; }
  Types infer(std::span<const TensorType> inputs) const override;
  Tensors vjp(const VjpArgs& args) const override { return {args.grads[0]}; }
  Tensors vmap(const VmapArgs& args) const override;
  Work cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const override;
  std::vector<Alias> may_alias(std::span<const TensorType>) const override { return {}; }
  LaneKind lane() const override { return LaneKind::copy_in; }
};

/// A copy on the compute lane, made visible where a value must lie in two places.
class CopyOp final : public Op {
 public:
  std::string_view name() const override { return "copy"; }
  Types infer(std::span<const TensorType> inputs) const override;
  Tensors vjp(const VjpArgs& args) const override { return {args.grads[0]}; }
  Tensors vmap(const VmapArgs& args) const override;
  Work cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const override;
  std::vector<Alias> may_alias(std::span<const TensorType>) const override { return {}; }
};

/// Applies CopyOut, CopyIn.
Tensor copy_out(const Tensor& value);
Tensor copy_in(const Tensor& host_copy);

/// Kernels of both where device and host memory are the same: memcpy, which bypasses the caches for copies
/// larger than they are.
void add_copy_kernels(KernelTable& table);

}  // namespace tandem::engine
