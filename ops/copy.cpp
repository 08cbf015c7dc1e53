#include <tandem/ops/copy.h>

#include <cstring>

#include <tandem/core/error.h>
#include <tandem/core/kernel.h>

namespace tandem {
namespace {

Types same_type(std::span<const TensorType> inputs) {
  if (inputs.size() != 1) throw Error("takes one value");
  return {inputs[0]};
}

KernelPtr make_copy(const KernelSpec& spec) {
  return make_kernel([bytes = static_cast<std::size_t>(spec.inputs[0].bytes())](const Launch& l) {
    if (bytes > 0) std::memcpy(l.out[0], l.in[0], bytes);
  });
}

}  // namespace

Types CopyOut::infer(std::span<const TensorType> inputs) const { return same_type(inputs); }
Tensors CopyOut::batch(const BatchArgs& args) const { return {copy_out(args.inputs.at(0))}; }
Work CopyOut::cost(std::span<const TensorType> in, std::span<const TensorType> out) const {
  return streaming_work(in, out, 0);
}

Types CopyIn::infer(std::span<const TensorType> inputs) const { return same_type(inputs); }
Tensors CopyIn::batch(const BatchArgs& args) const { return {copy_in(args.inputs.at(0))}; }
Work CopyIn::cost(std::span<const TensorType> in, std::span<const TensorType> out) const {
  return streaming_work(in, out, 0);
}

Types Copy::infer(std::span<const TensorType> inputs) const { return same_type(inputs); }
Tensors Copy::batch(const BatchArgs& args) const {
  return {apply_op1(std::make_shared<Copy>(), args.inputs)};
}
Work Copy::cost(std::span<const TensorType> in, std::span<const TensorType> out) const {
  return streaming_work(in, out, 0);
}

Tensor copy_out(const Tensor& value) { return apply_op1(std::make_shared<CopyOut>(), {value}); }
Tensor copy_in(const Tensor& host_copy) { return apply_op1(std::make_shared<CopyIn>(), {host_copy}); }

void add_copy_kernels(KernelTable& table) {
  table.add("copy", make_copy);
  table.add("copy_out", make_copy);
  table.add("copy_in", make_copy);
}

}  // namespace tandem
