#pragma once
#include <tandem/core/graph/kernel.h>

namespace tandem::engine {

/// For ops that have no kernel of their own in a narrow floating dtype (bf16, f16): the f32 kernel of
/// `spec.table` on copies of the operands, which it leaves in the workspace; results are rounded once, at the
/// end. Null where no operand is narrow.
KernelPtr make_through_f32(const KernelSpec& spec);

}  // namespace tandem::engine
