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

/// Calls `make` with a zero of the unsigned integer that is as large as an element of `dtype`, for kernels
/// that only copy.
template <class F> KernelPtr make_for_size(DType dtype, const F& make) {
  switch (size_of(dtype)) {
    case 1: return make(std::uint8_t{});
    case 2: return make(std::uint16_t{});
    case 4: return make(std::uint32_t{});
    case 8: return make(std::uint64_t{});
    default: return nullptr;
  }
}

}  // namespace tandem::engine
