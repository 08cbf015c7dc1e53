#pragma once
#include <tandem/autograd/training_graph.h>
#include <tandem/plan/strategy.h>

namespace tandem::engine {

/// A traced forward graph as a whole training step of one replica: forward, backward, accumulation over
/// micro-batches. What happens with the gradients comes after.
///
/// The forward graph delivers a result "loss": the mean over one replica's micro-batch. It and the other
/// floating results are scaled by 1/(replicas · microbatches) here, and nowhere else: sums over micro-batches
/// and ranks then are means over the global batch, of results and gradients alike. Integers count something,
/// and are left to be summed. Gradients and results are left
/// folds in micro-batch order. State assigned by a micro-batch is what the next one reads.
TrainingGraph training_graph(const Graph& forward, const Strategy& strategy);

/// The forward graph alone, with its results scaled likewise.
TrainingGraph evaluation_graph(const Graph& forward, const Strategy& strategy);

}  // namespace tandem::engine
