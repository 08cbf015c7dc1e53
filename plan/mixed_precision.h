#pragma once
#include <tandem/core/graph/graph.h>

namespace tandem::engine {

/// The forward graph with products in `dtype` (bf16): matrix products and convolutions take and give it, what
/// `follows` them (Op::precision) keeps it, everything else, losses and reductions and expressions that
/// nothing but these read among it, is computed in f32 as before. Parameters and other state stay f32, and so
/// do results; casts stand between. Differentiated afterwards, so gradients take the same ways back, and
/// reach the parameters in f32. Throws Error where `dtype` is not bf16, or where a state is f64.
Graph mixed_precision(const Graph& forward, DType dtype);

}  // namespace tandem::engine
