#pragma once
#include <vector>

#include <tandem/ops/kernels.h>

namespace tandem::testing {

/// The reference kernels and the CPU's, for what must hold with both.
inline const std::vector<const engine::KernelTable*>& both_backends() {
  static const std::vector<const engine::KernelTable*> tables{&engine::reference_kernels(),
                                                              &engine::cpu_kernels()};
  return tables;
}

}  // namespace tandem::testing
