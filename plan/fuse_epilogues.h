#pragma once
#include <tandem/core/graph/graph.h>

namespace tandem::engine {

/// Fuses products (matrix products and convolutions) with the expression that follows, as an epilogue
/// (ops/epilogue.h). The expression must have the product's type and place (stage, lag, micro-batch, phase)
/// and be its only reader. It must not make a state's next value from the last one, nor read a value that is
/// received or copied in. If an expression reads several products, the last one takes it. No tensor lives
/// longer: the fused op stands where the expression was if nothing is computed between the two, else where
/// the product was if all other operands exist by then. Every element keeps its bits.
Graph fuse_epilogues(const Graph& graph);

}  // namespace tandem::engine
