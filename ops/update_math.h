#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>

#include <tandem/ops/launch_operands.h>
#include <tandem/ops/update.h>

namespace tandem::engine {

/// The formulas of the update ops for `n` elements, shared by all CPU kernels. Outputs can be the same memory
/// as inputs.
template <class T>
[[gnu::always_inline]] inline void sgd_elements(const SgdOptions& options, T lr, const T* w, const T* v,
                                                const T* g, T* new_w, T* new_v, std::int64_t n) {
  const T momentum = static_cast<T>(options.momentum), decay = static_cast<T>(options.weight_decay);
  const T share = static_cast<T>(options.rule == SgdRule::momentum ? 1 : 1 - options.momentum);
  const bool nesterov = options.nesterov, raw = options.rule == SgdRule::raw_ema;
  if (options.momentum == 0) {  // v' = g'
#pragma GCC ivdep
    for (std::int64_t i = 0; i < n; ++i) {
      const T gradient = g[i] + decay * w[i];
      new_w[i] = w[i] - lr * gradient;
      new_v[i] = gradient;
    }
    return;
  }
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    const T gradient = g[i] + decay * w[i];
    const T velocity = momentum * v[i] + share * gradient;
    const T step = raw ? gradient : nesterov ? gradient + momentum * velocity : velocity;
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

/// The factors that all elements share in one step of Adam.
template <class T> struct AdamFactors {
  T beta1, beta2, rest1, rest2, epsilon, decay, shrink, step, root;
  /// `t` is the number of the step, from 1. 1 − beta is computed in double and then rounded: for beta =
  /// 0.9999, subtracting in f32 would be wrong by 2 parts in 10,000.
  AdamFactors(const AdamOptions& o, double t, double lr)
      : beta1(static_cast<T>(o.beta1)),
        beta2(static_cast<T>(o.beta2)),
        rest1(static_cast<T>(1 - o.beta1)),
        rest2(static_cast<T>(1 - o.beta2)),
        epsilon(static_cast<T>(o.epsilon)),
        decay(static_cast<T>(o.decoupled ? 0 : o.weight_decay)),
        shrink(static_cast<T>(o.decoupled ? 1 - lr * o.weight_decay : 1)),
        step(static_cast<T>(lr / (1 - std::pow(o.beta1, t)))),
        root(static_cast<T>(std::sqrt(1 - std::pow(o.beta2, t)))) {}
};

template <class T>
[[gnu::always_inline]] inline void adam_elements(const AdamFactors<T>& f, const T* w, const T* m, const T* v,
                                                 const T* g, T* new_w, T* new_m, T* new_v, std::int64_t n) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    const T gradient = g[i] + f.decay * w[i];
    const T mean = f.beta1 * m[i] + f.rest1 * gradient;
    const T square = f.beta2 * v[i] + f.rest2 * gradient * gradient;
    new_w[i] = f.shrink * w[i] - f.step * mean / (std::sqrt(square) / f.root + f.epsilon);
    new_m[i] = mean;
    new_v[i] = square;
  }
}

template <class T>
[[gnu::always_inline]] inline void predict_elements(T c, const T* w, const T* v, T* predicted,
                                                    std::int64_t n) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) predicted[i] = w[i] - c * v[i];
}

/// Reads an update's coefficient: one value for all elements, or one per model.
struct Coefficient {
  DType dtype;
  std::int64_t per_model;  ///< number of elements that share one value

  /// The coefficient is input `input`.
  Coefficient(const KernelSpec& spec, std::size_t input)
      : dtype(spec.inputs[input].dtype),
        per_model(spec.inputs[input].rank() == 0
                      ? spec.inputs[0].elements()
                      : spec.inputs[0].elements() / std::max<std::int64_t>(1, spec.inputs[0].shape[0])) {}
  /// Returns the value for the model that holds element `i`.
  template <class T> T at(const void* data, std::int64_t i) const {
    const std::int64_t model = i / per_model;
    return dtype == DType::f64 ? static_cast<T>(static_cast<const double*>(data)[model])
                               : static_cast<T>(static_cast<const float*>(data)[model]);
  }
  /// Cuts elements begin … end−1 by model and calls `f(coefficient, first, count)` for each part.
  template <class T, class F>
  void visit(const void* data, std::int64_t begin, std::int64_t end, const F& f) const {
    while (begin < end) {
      const std::int64_t stop = std::min(end, (begin / per_model + 1) * per_model);
      f(at<T>(data, begin), begin, stop - begin);
      begin = stop;
    }
  }
};

/// Tells which models an update changes: those with true in the last input of a guarded op, otherwise all.
class Guard {
 public:
  Guard(const KernelSpec& spec, bool guarded)
      : input_(guarded ? static_cast<int>(spec.inputs.size()) - 1 : -1),
        shared_(!guarded || spec.inputs.back().rank() == 0),
        per_model_(spec.inputs[0].elements() /
                   std::max<std::int64_t>(1, shared_ ? 1 : spec.inputs[0].shape[0])) {}
  bool updates(const Launch& l, std::int64_t model) const {
    return input_ < 0 || input<bool>(l, input_)[shared_ ? 0 : model];
  }
  /// Cuts elements begin … end−1 by model. Calls `update(begin, end)` for each part of an updated model; for
  /// the other models it copies inputs 0 … states−1, of type T, to the outputs of the same numbers.
  template <class T, class F>
  void visit(const Launch& l, int states, std::int64_t begin, std::int64_t end, const F& update) const {
    while (begin < end) {
      const std::int64_t stop = std::min(end, (begin / per_model_ + 1) * per_model_);
      if (updates(l, begin / per_model_)) {
        update(begin, stop);
      } else {
        for (int k = 0; k < states; ++k)
          if (l.in[k] != l.out[k])
            std::copy(input<T>(l, k) + begin, input<T>(l, k) + stop, output<T>(l, k) + begin);
      }
      begin = stop;
    }
  }

 private:
  int input_;
  bool shared_;
  std::int64_t per_model_;  // number of elements that share one bool
};

/// Writes the step numbers (f32 or f64) to output `to`: one more than those of input `from` for each updated
/// model.
inline void count_steps(const TensorType& type, const Guard& guard, const Launch& l, int from, int to) {
  for (std::int64_t i = 0; i < type.elements(); ++i) {
    const int more = guard.updates(l, i) ? 1 : 0;
    if (type.dtype == DType::f64)
      output<double>(l, to)[i] = input<double>(l, from)[i] + more;
    else
      output<float>(l, to)[i] = input<float>(l, from)[i] + static_cast<float>(more);
  }
}

}  // namespace tandem::engine
