#pragma once
#include <tandem/autograd/training_graph.h>
#include <tandem/plan/strategy.h>

namespace tandem::engine {

/// Turns a traced forward graph into a training step of one replica: forward, backward, accumulation over
/// micro-batches. Later passes use the gradients.
///
/// The forward graph must deliver a result "loss": the mean over one replica's micro-batch. Only this pass
/// scales the loss and the other floating-point results by 1/(replicas · microbatches), so that sums over
/// micro-batches and ranks are means over the global batch, for results and gradients alike. Integer results
/// are counts: they are summed, not scaled. Gradients and results are left folds in micro-batch order. Each
/// micro-batch reads the state that the one before assigned.
TrainingGraph training_graph(const Graph& forward, const Strategy& strategy);

/// Returns the forward graph alone, with its floating-point results scaled by 1/replicas.
TrainingGraph evaluation_graph(const Graph& forward, const Strategy& strategy);

}  // namespace tandem::engine
