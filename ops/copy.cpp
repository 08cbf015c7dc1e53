#include <tandem/ops/copy.h>

#include <cstring>

#include <tandem/core/base/error.h>
#include <tandem/core/graph/kernel.h>

namespace tandem::engine {
namespace {

KernelPtr make_copy(const KernelSpec& spec) {
  return make_kernel([bytes = static_cast<std::size_t>(spec.inputs[0].bytes())](const Launch& l) {
    if (bytes > 0) std::memcpy(l.out[0], l.in[0], bytes);
  });
}

}  // namespace

Types ValueCopyOp::infer(TypesView inputs) const {
  require_inputs(inputs, 1);
  return {inputs[0]};
}

Tensor copy_out(const Tensor& value) { return apply_op1(std::make_shared<CopyOutOp>(), {value}); }
Tensor copy_in(const Tensor& host_copy) { return apply_op1(std::make_shared<CopyInOp>(), {host_copy}); }

void add_copy_kernels(KernelTable& table) {
  table.add("copy", make_copy);
  table.add("copy_out", make_copy);
  table.add("copy_in", make_copy);
}

}  // namespace tandem::engine
