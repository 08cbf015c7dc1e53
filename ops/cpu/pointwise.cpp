#include <tandem/ops/pointwise.h>

#include <tandem/ops/cpu/kernels.h>
#include <tandem/ops/cpu/parallel.h>
#include <tandem/ops/cpu/tiled_expression.h>

namespace tandem {

KernelPtr make_pointwise_cpu(const KernelSpec& spec) {
  if (pointwise_precision(spec.inputs, spec.outputs[0].dtype) == DType::f64) return nullptr;
  const std::int64_t n = spec.outputs[0].elements();
  if (n == 0) return make_kernel([](const Launch&) {});
  const auto tiled =
      TiledExpression::make(static_cast<const Pointwise&>(spec.op).program, spec.inputs, spec.outputs[0]);
  if (!tiled) return nullptr;
  const auto bytes = static_cast<std::int64_t>(spec.op.cost(spec.inputs, spec.outputs).bytes);
  const std::int64_t tiles = (n + tiled->tile() - 1) / tiled->tile();
  return make_kernel([tiled = *tiled, tiles, threads = useful_threads(spec.threads, bytes)](const Launch& l) {
    parallel_parts(threads, tiles, [&](std::int64_t first, std::int64_t last) {
      tiled.store(l.in, l.out[0], first * tiled.tile(), std::min(last * tiled.tile(), tiled.elements()));
    });
  });
}

}  // namespace tandem
