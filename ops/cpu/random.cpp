#include <tandem/ops/random.h>

#include <tandem/core/base/clones.h>
#include <tandem/ops/cpu/kernels.h>
#include <tandem/ops/cpu/parallel.h>
#include <tandem/ops/cpu/uniforms.h>
#include <tandem/ops/sample_draws.h>

namespace tandem::engine {
namespace {

TANDEM_CLONES void drop(const float* draws, float threshold, float scale, const float* x, float* y,
                        std::int64_t n) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    const float kept = x[i] * scale;
    y[i] = draws[i] >= threshold ? kept : 0.0f;
  }
}

}  // namespace

// Draws the same numbers as the reference kernel.
KernelPtr make_dropout_cpu(const KernelSpec& spec) {
  if (spec.inputs[0].dtype != DType::f32) return nullptr;
  const DropoutMask mask(spec);
  const float scale = static_cast<float>(1 / (1 - static_cast<const DropoutOp&>(spec.op).p));
  const std::int64_t quads = (mask.row_elements + 3) / 4;  // per row
  const std::int64_t blocks = (mask.rows * quads + kQuads - 1) / kQuads;
  const int threads = useful_threads(spec.threads, 4 * spec.inputs[0].bytes());
  return make_kernel([=](const Launch& l) {
    const auto* x = input<float>(l, 0);
    auto* y = output<float>(l, 0);
    const RngKey key = mask.key(l);
    parallel_parts(threads, blocks, [&](std::int64_t begin, std::int64_t end) {
      float draws[4 * kQuads];
      for (std::int64_t block = begin; block < end; ++block) {
        const std::int64_t first = block * kQuads, last = std::min(first + kQuads, mask.rows * quads);
        uniforms(key, mask.sample(l, 0), quads, first, draws);
        for (std::int64_t q = first; q < last;) {  // the part of a row that lies in this block
          const std::int64_t row = q / quads, in_row = q % quads * 4,
                             n = std::min(last - q, quads - q % quads);
          const std::int64_t i = row * mask.row_elements + in_row;
          drop(draws + 4 * (q - first), mask.threshold, scale, x + i, y + i,
               std::min(4 * n, mask.row_elements - in_row));
          q += n;
        }
      }
    });
  });
}

}  // namespace tandem::engine
