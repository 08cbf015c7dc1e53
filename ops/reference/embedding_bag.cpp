#include <tandem/ops/embedding_bag.h>

#include <algorithm>

#include <tandem/ops/reference/kernels.h>

namespace tandem::engine {

KernelPtr make_embedding_bag_reference(const KernelSpec& spec) {
  const int tables = static_cast<int>(spec.inputs.size()) - 1;
  std::vector<std::int64_t> rows;
  for (int k = 0; k < tables; ++k) rows.push_back(spec.inputs[static_cast<std::size_t>(k)].shape[0]);
  return make_for<float, double>(spec.outputs[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    return make_kernel([=, ids = spec.inputs.back(), features = spec.outputs[0].shape[2],
                        mean = static_cast<const EmbeddingBagOp&>(spec.op).mean](const Launch& l) {
      const BagIds bags(ids, l.in[static_cast<std::size_t>(tables)]);
      bags.check(rows);
      T* y = output<T>(l, 0);
      for (std::int64_t n = 0; n < bags.samples; ++n)
        for (std::int64_t k = 0; k < bags.tables; ++k, y += features) {
          std::fill_n(y, features, T(0));
          const T* table = input<T>(l, static_cast<int>(k));
          for (std::int64_t p = 0; p < bags.places; ++p)
            if (const std::int64_t id = bags.of(n, k)[p]; id >= 0)
              for (std::int64_t f = 0; f < features; ++f) y[f] += table[id * features + f];
          if (const std::int64_t divisor = bags.divisor(n, k, mean); divisor > 1)
            for (std::int64_t f = 0; f < features; ++f) y[f] /= static_cast<T>(divisor);
        }
    });
  });
}

KernelPtr make_embedding_bag_grad_reference(const KernelSpec& spec) {
  const auto& op = static_cast<const EmbeddingBagGradOp&>(spec.op);
  return make_for<float, double>(spec.inputs[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    return make_kernel([rows = op.rows, mean = op.mean, ids = spec.inputs[1],
                        features = spec.inputs[0].shape[2]](const Launch& l) {
      const BagIds bags(ids, l.in[1]);
      bags.check(rows);
      for (std::int64_t k = 0; k < bags.tables; ++k) {
        T* y = output<T>(l, static_cast<int>(k));
        std::fill_n(y, rows[static_cast<std::size_t>(k)] * features, T(0));
        for (std::int64_t n = 0; n < bags.samples; ++n) {
          const T* x = input<T>(l, 0) + (n * bags.tables + k) * features;
          const auto divisor = static_cast<T>(bags.divisor(n, k, mean));
          for (std::int64_t p = 0; p < bags.places; ++p)
            if (const std::int64_t id = bags.of(n, k)[p]; id >= 0)
              for (std::int64_t f = 0; f < features; ++f) y[id * features + f] += x[f] / divisor;
        }
      }
    });
  });
}

}  // namespace tandem::engine
