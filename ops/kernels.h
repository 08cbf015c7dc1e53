#pragma once
#include <tandem/core/graph/kernel.h>

namespace tandem::engine {

/// Plain loops in float and double, one thread: the tests' oracle.
const KernelTable& reference_kernels();
/// The fast CPU kernels, over the reference ones.
const KernelTable& cpu_kernels();

}  // namespace tandem::engine
