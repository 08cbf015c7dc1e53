#include <tandem/ops/random.h>

#include <tandem/ops/dropout_mask.h>
#include <tandem/ops/reference/kernels.h>

namespace tandem::engine {
namespace {

template <class T> KernelPtr make(const KernelSpec& spec) {
  return make_kernel(
      [mask = DropoutMask(spec), p = static_cast<const DropoutOp&>(spec.op).p](const Launch& l) {
        const T scale = static_cast<T>(1 / (1 - p));
        const RngKey key = mask.key(l);
        for (std::int64_t row = 0; row < mask.rows; ++row)
          for (std::int64_t e = 0; e < mask.row_elements; ++e) {
            const float u = uniform(key, mask.sample(l, row), static_cast<std::uint64_t>(e));
            const std::int64_t i = row * mask.row_elements + e;
            output<T>(l, 0)[i] = mask.keeps(u) ? input<T>(l, 0)[i] * scale : T(0);
          }
      });
}

}  // namespace

KernelPtr make_dropout_reference(const KernelSpec& spec) {
  return make_for<float, double>(spec.inputs[0].dtype, [&](auto zero) { return make<decltype(zero)>(spec); });
}

}  // namespace tandem::engine
