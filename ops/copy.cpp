#include <tandem/ops/copy.h>

#include <chrono>
#include <cstring>

#include <fmt/format.h>

#include <tandem/core/base/error.h>
#include <tandem/core/base/sleep.h>
#include <tandem/core/graph/kernel.h>

namespace tandem::engine {
namespace {

KernelPtr make_copy(const KernelSpec& spec) {
  return make_kernel([bytes = static_cast<std::size_t>(spec.inputs[0].bytes())](const Launch& l) {
    if (bytes > 0) std::memcpy(l.out[0], l.in[0], bytes);
  });
}

KernelPtr make_link_copy(const KernelSpec& spec) {
  const double rate = static_cast<const LinkCopyOp&>(spec.op).link.bytes_per_ms;
  if (rate == 0) return make_copy(spec);
  const auto bytes = static_cast<std::size_t>(spec.inputs[0].bytes());
  const auto takes = std::chrono::duration_cast<std::chrono::steady_clock::duration>(
      std::chrono::duration<double, std::milli>(static_cast<double>(bytes) / rate));
  return make_kernel([bytes, takes](const Launch& l) {
    const auto end = std::chrono::steady_clock::now() + takes;
    if (bytes > 0) std::memcpy(l.out[0], l.in[0], bytes);
    sleep_until(end);
  });
}

}  // namespace

std::string LinkCopyOp::attributes() const {
  return link == CopyLink() ? "" : fmt::format("link={}{}", link.bytes_per_ms, link.duplex ? "" : " shared");
}

Types ValueCopyOp::infer(TypesView inputs) const {
  require_inputs(inputs, 1);
  return {inputs[0]};
}

Tensor copy_out(const Tensor& value) { return apply_op1(std::make_shared<CopyOutOp>(), {value}); }
Tensor copy_in(const Tensor& host_copy) { return apply_op1(std::make_shared<CopyInOp>(), {host_copy}); }

void add_copy_kernels(KernelTable& table) {
  table.add("copy", make_copy);
  table.add("copy_out", make_link_copy);
  table.add("copy_in", make_link_copy);
}

}  // namespace tandem::engine
