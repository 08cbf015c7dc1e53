// Rows of tables by the team: copied by the ids that each member has, added by the rows of the table that it
// owns, so that every row's sum runs in the order of the ids.
#include <tandem/ops/index.h>

#include <algorithm>
#include <cstring>

#include <tandem/core/clones.h>
#include <tandem/ops/cpu/kernels.h>
#include <tandem/ops/cpu/parallel.h>

namespace tandem {
namespace {

TANDEM_CLONES void add_row(const float* x, std::int64_t n, float* y) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) y[i] += x[i];
}

}  // namespace

KernelPtr make_embedding_cpu(const KernelSpec& spec) {
  const std::int64_t count = spec.inputs[1].elements(), rows = spec.inputs[0].shape[0],
                     row = rows > 0 ? spec.inputs[0].bytes() / rows : 0;
  const int threads = useful_threads(spec.threads, 2 * spec.outputs[0].bytes());
  return make_kernel([=](const Launch& l) {
    const auto* ids = static_cast<const std::int32_t*>(l.in[1]);
    check_indices(ids, count, rows);
    parallel_parts(threads, count, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i)
        std::memcpy(static_cast<std::byte*>(l.out[0]) + i * row,
                    static_cast<const std::byte*>(l.in[0]) + ids[i] * row, static_cast<std::size_t>(row));
    });
  });
}

KernelPtr make_embedding_grad_cpu(const KernelSpec& spec) {
  if (spec.inputs[0].dtype != DType::f32) return nullptr;
  const std::int64_t count = spec.inputs[1].elements(), rows = spec.outputs[0].shape[0],
                     row = rows > 0 ? spec.outputs[0].elements() / rows : 0;
  const int threads = useful_threads(spec.threads, spec.inputs[0].bytes() + spec.outputs[0].bytes());
  return make_kernel([=](const Launch& l) {
    const auto* ids = static_cast<const std::int32_t*>(l.in[1]);
    check_indices(ids, count, rows);
    const auto* x = static_cast<const float*>(l.in[0]);
    auto* y = static_cast<float*>(l.out[0]);
    parallel_parts(threads, rows, [&](std::int64_t begin, std::int64_t end) {
      std::fill_n(y + begin * row, (end - begin) * row, 0.0f);
      for (std::int64_t i = 0; i < count; ++i)
        if (ids[i] >= begin && ids[i] < end) add_row(x + i * row, row, y + ids[i] * row);
    });
  });
}

}  // namespace tandem
