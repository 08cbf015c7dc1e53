#include <tandem/ops/interpolate.h>

#include <tandem/ops/reference/kernels.h>

namespace tandem::engine {

KernelPtr make_interpolate_reference(const KernelSpec& spec) {
  const auto& op = static_cast<const InterpolateOp&>(spec.op);
  const Shape from = spec.inputs[0].shape, to = spec.outputs[0].shape;
  return make_for<float, double>(spec.inputs[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    return make_kernel([from, to, rows = op.rows(), columns = op.columns()](const Launch& l) {
      const T* x = input<T>(l, 0);
      T* y = output<T>(l, 0);
      for (std::int64_t n = 0; n < to[0]; ++n)
        for (const auto& row : rows.of)
          for (const auto& column : columns.of)
            for (std::int64_t c = 0; c < to[3]; ++c) {
              double sum = 0;
              for (const auto& h : row)
                for (const auto& w : column)
                  sum += h.weight * w.weight * x[((n * from[1] + h.pixel) * from[2] + w.pixel) * from[3] + c];
              *y++ = static_cast<T>(sum);
            }
    });
  });
}

}  // namespace tandem::engine
