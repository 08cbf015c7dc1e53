#include <tandem/ops/interpolate.h>

#include <algorithm>

#include <tandem/core/base/clones.h>
#include <tandem/ops/cpu/kernels.h>
#include <tandem/ops/cpu/parallel.h>

namespace tandem::engine {
namespace {

TANDEM_CLONES void add_scaled(const float* x, float weight, std::int64_t n, float* y) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) y[i] += weight * x[i];
}

}  // namespace

// Threads share the rows of the result.
KernelPtr make_interpolate_cpu(const KernelSpec& spec) {
  if (spec.inputs[0].dtype != DType::f32) return nullptr;
  const auto& op = static_cast<const InterpolateOp&>(spec.op);
  const std::int64_t channels = spec.inputs[0].shape[3], height = spec.inputs[0].shape[1],
                     width = spec.inputs[0].shape[2], images = spec.outputs[0].shape[0];
  const int threads = useful_threads(spec.threads, spec.inputs[0].bytes() + 4 * spec.outputs[0].bytes());
  return make_kernel([=, rows = op.rows(), columns = op.columns()](const Launch& l) {
    const auto height_out = std::ssize(rows.of), width_out = std::ssize(columns.of);
    parallel_parts(threads, images * height_out, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) {
        const float* image = input<float>(l, 0) + r / height_out * height * width * channels;
        float* y = output<float>(l, 0) + r * width_out * channels;
        std::fill_n(y, width_out * channels, 0.0f);
        for (const auto& h : rows.of[static_cast<std::size_t>(r % height_out)])
          for (std::int64_t ow = 0; ow < width_out; ++ow)
            for (const auto& w : columns.of[static_cast<std::size_t>(ow)])
              add_scaled(image + (h.pixel * width + w.pixel) * channels,
                         static_cast<float>(h.weight * w.weight), channels, y + ow * channels);
      }
    });
  });
}

}  // namespace tandem::engine
