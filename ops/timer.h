#pragma once
#include <string>

#include <tandem/ops/apply.h>

namespace tandem::engine {

class KernelTable;

/// Takes `ms` milliseconds on a lane of its own. It begins when its input is there, whatever that is. Its
/// output is empty: a node that takes it as an input begins no earlier.
class TimerOp final : public Op {
 public:
  /// Throws Error unless `ms` is finite and not negative.
  TimerOp(double ms, DType dtype);
  std::string_view name() const override { return "timer"; }
  std::string attributes() const override;
  Types infer(TypesView inputs) const override;
  Tensors vjp(const VjpArgs& args) const override { return Tensors(args.inputs.size()); }
  Tensors vmap(const VmapArgs& args) const override { return apply_op(*this, args.inputs); }
  Work cost(TypesView, TypesView) const override { return {}; }
  std::vector<Alias> may_alias(TypesView) const override { return {}; }
  LaneKind lane() const override { return LaneKind::timer; }

  const double ms;
  const DType dtype;  ///< of the output
};

/// Adds the op's kernel, which sleeps.
void add_timer_kernel(KernelTable& table);

}  // namespace tandem::engine
