#pragma once
#include <tandem/core/graph/graph.h>

namespace tandem::engine {

/// The graph with products (of matrices, convolutions) that take what follows as an epilogue
/// (ops/epilogue.h): an expression of the product's type, in the same place, that alone reads the result, and
/// neither makes a state's value of its last one nor reads what is received or copied in. Of several products
/// in one expression the last takes it. No tensor lives longer: the two are done where the expression was, if
/// nothing is computed between them, and else where the product was, if all that the expression reads is made
/// by then. Every element has the bits it had.
Graph fuse_epilogues(const Graph& graph);

}  // namespace tandem::engine
