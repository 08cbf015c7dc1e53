#pragma once
#include <algorithm>
#include <cstdint>

#include <tandem/core/kernel.h>
#include <tandem/ops/update.h>

namespace tandem {

/// The formulas of the update ops on `n` elements, shared by all CPU kernels; outputs may be the inputs'
/// memory.
template <class T>
[[gnu::always_inline]] inline void sgd_elements(const SgdOptions& options, T lr, const T* w, const T* v,
                                                const T* g, T* new_w, T* new_v, std::int64_t n) {
  const T momentum = static_cast<T>(options.momentum), decay = static_cast<T>(options.weight_decay);
  const bool nesterov = options.nesterov;
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    const T gradient = g[i] + decay * w[i];
    const T velocity = momentum * v[i] + gradient;
    const T step = nesterov ? gradient + momentum * velocity : velocity;
    new_w[i] = w[i] - lr * step;
    new_v[i] = velocity;
  }
}

template <class T>
[[gnu::always_inline]] inline void sgd_elements(const SgdOptions& options, T lr, const T* w, const T* g,
                                                T* new_w, std::int64_t n) {
  const T decay = static_cast<T>(options.weight_decay);
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) new_w[i] = w[i] - lr * (g[i] + decay * w[i]);
}

template <class T>
[[gnu::always_inline]] inline void predict_elements(T c, const T* w, const T* v, T* predicted,
                                                    std::int64_t n) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) predicted[i] = w[i] - c * v[i];
}

/// Where an update's coefficient lies and to how many elements each applies.
struct Coefficient {
  DType dtype;
  std::int64_t per_model;  ///< elements that share one

  explicit Coefficient(const KernelSpec& spec)
      : dtype(spec.inputs.back().dtype),
        per_model(spec.inputs.back().rank() == 0
                      ? spec.inputs[0].elements()
                      : spec.inputs[0].elements() / std::max<std::int64_t>(1, spec.inputs[0].shape[0])) {}
  /// Of the model that holds element `i`.
  template <class T> T at(const void* data, std::int64_t i) const {
    const std::int64_t model = i / per_model;
    return dtype == DType::f64 ? static_cast<T>(static_cast<const double*>(data)[model])
                               : static_cast<T>(static_cast<const float*>(data)[model]);
  }
  /// Calls `f(coefficient, first, count)` for the models' parts of elements begin … end−1.
  template <class T, class F>
  void visit(const void* data, std::int64_t begin, std::int64_t end, const F& f) const {
    while (begin < end) {
      const std::int64_t stop = std::min(end, (begin / per_model + 1) * per_model);
      f(at<T>(data, begin), begin, stop - begin);
      begin = stop;
    }
  }
};

}  // namespace tandem
