#pragma once
#include <tandem/ops/apply.h>
#include <tandem/ops/copy_link.h>

namespace tandem::engine {

class KernelTable;

/// The base of the ops below: the output has the input's type and elements.
class ValueCopyOp : public StreamingOp {
 public:
  Types infer(TypesView inputs) const override;
  Tensors vjp(const VjpArgs& args) const override { return {args.grads[0]}; }
};

/// A copy between device and host: as fast as memory without a link, and else not faster than the link.
class LinkCopyOp : public ValueCopyOp {
 public:
  explicit LinkCopyOp(CopyLink link) : link(link) {}
  std::string attributes() const override;
  const CopyLink link;
};

/// Copies a value to host memory (the host arena). A swap keeps this copy while it reuses the device memory.
class CopyOutOp final : public LinkCopyOp {
 public:
  explicit CopyOutOp(CopyLink link = {}) : LinkCopyOp(link) {}
  std::string_view name() const override { return "copy_out"; }
  Tensors vmap(const VmapArgs& args) const override { return apply_op(*this, args.inputs); }
  LaneKind lane() const override { return LaneKind::copy_out; }
  bool makes_host_copy() const override { return true; }
};

/// Copies a host copy back: the output is a new value in device memory, equal to the host copy. If the link
/// carries one copy at a time, both directions have one lane.
class CopyInOp final : public LinkCopyOp {
 public:
  explicit CopyInOp(CopyLink link = {}) : LinkCopyOp(link) {}
  std::string_view name() const override { return "copy_in"; }
  Tensors vmap(const VmapArgs& args) const override { return apply_op(*this, args.inputs); }
  LaneKind lane() const override { return link.duplex ? LaneKind::copy_in : LaneKind::copy_out; }
};

/// Copies a value on the compute lane. Buffer assignment inserts it if a value must lie in two places.
class CopyOp final : public ValueCopyOp {
 public:
  std::string_view name() const override { return "copy"; }
  Tensors vmap(const VmapArgs& args) const override { return apply_op(*this, args.inputs); }
};

/// Apply CopyOutOp and CopyInOp.
Tensor copy_out(const Tensor& value);
Tensor copy_in(const Tensor& host_copy);

/// Adds the kernels of these ops for backends whose device memory is host memory: memcpy, which bypasses the
/// caches if a copy is larger than the caches. With a link they then sleep as long as it would still take.
void add_copy_kernels(KernelTable& table);

}  // namespace tandem::engine
