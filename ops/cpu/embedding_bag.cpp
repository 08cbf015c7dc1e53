// A team shares the bags to sum them. For the gradients it shares the columns of the tables, so that every
// sum runs in the order of the ids.
#include <tandem/ops/embedding_bag.h>

#include <algorithm>

#include <tandem/core/base/clones.h>
#include <tandem/ops/cpu/kernels.h>
#include <tandem/ops/cpu/parallel.h>
#include <tandem/ops/cpu/sum_rows.h>
#include <tandem/ops/launch_operands.h>

namespace tandem::engine {
namespace {

TANDEM_CLONES void divide_row(std::int64_t n, float divisor, float* y) {
  for (std::int64_t i = 0; i < n; ++i) y[i] /= divisor;
}

}  // namespace

KernelPtr make_embedding_bag_cpu(const KernelSpec& spec) {
  if (spec.outputs[0].dtype != DType::f32) return nullptr;
  const int tables = static_cast<int>(spec.inputs.size()) - 1;
  std::vector<std::int64_t> rows;
  for (int k = 0; k < tables; ++k) rows.push_back(spec.inputs[static_cast<std::size_t>(k)].shape[0]);
  const std::int64_t features = spec.outputs[0].shape[2];
  const int threads = useful_threads(spec.threads, spec.inputs.back().elements() * features * 4);
  return make_kernel([=, ids = spec.inputs.back(),
                      mean = static_cast<const EmbeddingBagOp&>(spec.op).mean](const Launch& l) {
    const BagIds bags(ids, l.in[static_cast<std::size_t>(tables)]);
    bags.check(rows);
    parallel_parts(threads, bags.samples * bags.tables, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t bag = begin; bag < end; ++bag) {
        const std::int64_t n = bag / bags.tables, k = bag % bags.tables;
        const float* table = input<float>(l, static_cast<int>(k));
        float* y = output<float>(l, 0) + bag * features;
        std::fill_n(y, features, 0.0f);
        for (std::int64_t p = 0; p < bags.places; ++p)
          if (const std::int64_t id = bags.of(n, k)[p]; id >= 0) add_row(table + id * features, features, y);
        if (const std::int64_t divisor = bags.divisor(n, k, mean); divisor > 1)
          divide_row(features, static_cast<float>(divisor), y);
      }
    });
  });
}

KernelPtr make_embedding_bag_grad_cpu(const KernelSpec& spec) {
  if (spec.inputs[0].dtype != DType::f32) return nullptr;
  const auto& op = static_cast<const EmbeddingBagGradOp&>(spec.op);
  const std::int64_t features = spec.inputs[0].shape[2];
  std::int64_t bytes = spec.inputs[0].bytes();
  for (const TensorType& t : spec.outputs) bytes += t.bytes();
  const int threads = useful_threads(spec.threads, bytes);
  return make_kernel([=, rows = op.rows, mean = op.mean, ids = spec.inputs[1]](const Launch& l) {
    const BagIds bags(ids, l.in[1]);
    bags.check(rows);
    // Tables in turn; each in as many parts of its columns as there are threads.
    parallel_parts(threads, bags.tables * threads, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t part = begin; part < end; ++part) {
        const std::int64_t k = part % bags.tables, slice = part / bags.tables,
                           first = slice * features / threads, last = (slice + 1) * features / threads;
        float* y = output<float>(l, static_cast<int>(k));
        for (std::int64_t row = 0; row < rows[static_cast<std::size_t>(k)]; ++row)
          std::fill(y + row * features + first, y + row * features + last, 0.0f);
        for (std::int64_t n = 0; n < bags.samples; ++n) {
          const float* x = input<float>(l, 0) + (n * bags.tables + k) * features;
          const auto divisor = static_cast<float>(bags.divisor(n, k, mean));
          for (std::int64_t p = 0; p < bags.places; ++p)
            if (const std::int64_t id = bags.of(n, k)[p]; id >= 0)
              add_share(x + first, divisor, last - first, y + id * features + first);
        }
      }
    });
  });
}

}  // namespace tandem::engine
