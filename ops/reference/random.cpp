#include <tandem/ops/random.h>

#include <tandem/ops/reference/kernels.h>
#include <tandem/ops/sample_draws.h>

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

KernelPtr make_noise_reference(const KernelSpec& spec) {
  const SampleDraws draws(spec, spec.outputs[0]);
  const bool normals = static_cast<const NoiseOp&>(spec.op).distribution == Distribution::standard_normal;
  return make_for<float, double>(spec.outputs[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    return make_kernel([draws, normals](const Launch& l) {
      T* y = output<T>(l, 0);
      const RngKey key = draws.key(l, 0);
      for (std::int64_t row = 0; row < draws.rows; ++row)
        for (std::uint64_t e = 0; e < static_cast<std::uint64_t>(draws.row_elements); ++e)
          *y++ = normals ? static_cast<T>(normal(key, draws.sample(l, row), e))
                         : static_cast<T>(uniform(key, draws.sample(l, row), e));
    });
  });
}

}  // namespace tandem::engine
