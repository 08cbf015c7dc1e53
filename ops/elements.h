#pragma once
#include <tandem/core/base/element.h>
#include <tandem/core/graph/kernel.h>

namespace tandem::engine {

/// Return the elements of input, or output, `i` of a launch.
template <class T> const T* input(const Launch& l, int i) { return static_cast<const T*>(l.in[i]); }
template <class T> T* output(const Launch& l, int i) { return static_cast<T*>(l.out[i]); }

/// Calls `make` with a zero of that type of `Elements` which stores `dtype`; returns null if none does.
template <class... Elements, class F> KernelPtr make_for(DType dtype, const F& make) {
  KernelPtr kernel;
  const auto try_type = [&](auto zero) {
    if (stores<decltype(zero)>(dtype)) kernel = make(zero);
  };
  (try_type(Elements{}), ...);
  return kernel;
}

}  // namespace tandem::engine
