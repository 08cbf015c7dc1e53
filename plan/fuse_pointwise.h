#pragma once
#include <tandem/core/graph/graph.h>

namespace tandem::engine {

/// The graph with chains of pointwise expressions made one: an expression whose value is read by one other
/// alone, in the same place (stage, lag, micro-batch, phase) and over as many elements, becomes a part of it.
/// One that several read, as a relu whose output backward masks by, is copied into those that read its inputs
/// anyway; where all do, it is not computed by itself. Sums that take an expression (TakesExpression) do the
/// same. Every element has the bits it had (ops/pointwise.h).
///
/// Not where it would keep more alive: an expression moves to where it is read only if one tensor of its
/// size, at most, must then live longer.
Graph fuse_pointwise(const Graph& graph);

}  // namespace tandem::engine
