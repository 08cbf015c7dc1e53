#pragma once
#include <tandem/core/graph/graph.h>

namespace tandem::engine {

/// Fuses chains of pointwise expressions. An expression with one reader, in the same place (stage, lag,
/// micro-batch, phase) and over as many elements, becomes a part of that reader. An expression with several
/// readers, such as a relu that backward also reads as a mask, is copied into the readers that read its
/// inputs anyway; if all of them do, it is not computed by itself. Sums that take an expression
/// (TakesExpression) fuse in the same way. Every element keeps its bits (ops/pointwise.h).
///
/// An expression moves to its reader only if at most one tensor of its size must then live longer.
Graph fuse_pointwise(const Graph& graph);

}  // namespace tandem::engine
