#pragma once
#include <tandem/core/graph/kernel.h>

namespace tandem::engine {

/// Makes a kernel for an op that has none for a narrow floating dtype (bf16, f16). It runs the f32 kernel of
/// `spec.table` on copies of the operands in the workspace, and rounds the results once, at the end. Returns
/// null if no operand is narrow.
KernelPtr make_through_f32(const KernelSpec& spec);

}  // namespace tandem::engine
