#include <cstring>

#include <tandem/ops/reference/kernels.h>
#include <tandem/ops/shape.h>

namespace tandem::engine {

KernelPtr make_movement_reference(const KernelSpec& spec) {
  const auto& op = static_cast<const MovementOp&>(spec.op);
  return make_kernel(
      [size = size_of(spec.outputs[0].dtype), regions = op.regions(spec.inputs)](const Launch& l) {
        constexpr std::int64_t kZero = 0;
        auto* to = output<std::byte>(l, 0);
        for (const CopyRegion& r : regions) {
          const auto* from = static_cast<const std::byte*>(r.input < 0 ? &kZero : l.in[r.input]);
          const std::int64_t n = element_count(r.extents);
          for (std::int64_t i = 0; i < n; ++i)  // memmove: a view's output can be its input
            std::memmove(to + (r.to_offset + position(r.extents, r.to, i)) * size,
                         from + (r.from_offset + position(r.extents, r.from, i)) * size,
                         static_cast<std::size_t>(size));
        }
      });
}

}  // namespace tandem::engine
