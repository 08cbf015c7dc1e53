#pragma once
#include <tandem/core/graph/graph.h>

namespace tandem::engine {

/// Rewrites a forward graph to compute products in `dtype` (bf16). Matrix products and convolutions read and
/// make `dtype`, and ops that follow them (Precision::follows) keep it. All others compute in f32 as before:
/// losses, reductions, and expressions that only these read. Parameters, other state and results stay f32;
/// casts connect the two types. The graph is differentiated afterwards, so gradients take the same paths
/// back and reach the parameters in f32. Throws Error if `dtype` is not bf16, or if a state is f64.
Graph mixed_precision(const Graph& forward, DType dtype);

}  // namespace tandem::engine
