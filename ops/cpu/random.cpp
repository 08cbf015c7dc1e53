#include <tandem/ops/random.h>

#include <tandem/ops/cpu/kernels.h>
#include <tandem/ops/cpu/parallel.h>
#include <tandem/ops/dropout_mask.h>

namespace tandem {

// Four draws at a time; what is drawn is the reference kernel's.
KernelPtr make_dropout_cpu(const KernelSpec& spec) {
  if (spec.inputs[0].dtype != DType::f32) return nullptr;
  const DropoutMask mask(spec);
  const float scale = static_cast<float>(1 / (1 - static_cast<const Dropout&>(spec.op).p));
  const std::int64_t quads = (mask.row_elements + 3) / 4;
  const int threads = useful_threads(spec.threads, 8 * spec.inputs[0].bytes());
  return make_kernel([=](const Launch& l) {
    const RngKey key = mask.key(l);
    parallel_parts(threads, mask.rows * quads, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t q = begin; q < end; ++q) {
        const std::int64_t row = q / quads, first = q % quads * 4;
        const auto draws = uniform4(key, mask.sample(l, row), static_cast<std::uint64_t>(q % quads));
        const float* x = static_cast<const float*>(l.in[0]) + row * mask.row_elements + first;
        float* y = static_cast<float*>(l.out[0]) + row * mask.row_elements + first;
        for (std::int64_t k = 0; k < std::min<std::int64_t>(4, mask.row_elements - first); ++k)
          y[k] = mask.keeps(draws[static_cast<std::size_t>(k)]) ? x[k] * scale : 0.0f;
      }
    });
  });
}

}  // namespace tandem
