#pragma once
#include <functional>
#include <map>
#include <string>

#include <tandem/core/graph/graph.h>

namespace tandem::engine {

/// The graph of a training step under construction, with the values that later passes still use.
struct TrainingGraph {
  Graph graph;
  std::map<StateId, ValueId> grads;        ///< of each trained state, summed over micro-batches
  ValueId update_if = -1;                  ///< bool, or one bool per model: update the states? −1: always
  std::map<std::string, ValueId> results;  ///< scaled, summed over micro-batches; no node returns them yet
};

struct TrainingGraphOptions {
  int models = 1;
  int replicas = 1;
  int microbatches = 1;
  /// Makes the value to differentiate of the loss, as loss scaling does. Empty: it is the loss.
  std::function<ValueId(Graph& forward, ValueId loss)> scale_loss{};
};

/// Turns a traced forward graph into a training step of one replica: forward, backward, accumulation over
/// micro-batches. Later passes use the gradients.
///
/// The forward graph must deliver a result "loss": the mean over one replica's micro-batch. Only this pass
/// scales the loss and the other floating-point results by 1/(replicas · microbatches), so that sums over
/// micro-batches and ranks are means over the global batch, for results and gradients alike. Integer results
/// are counts: they are summed, not scaled. Gradients and results are left folds in micro-batch order. Each
/// micro-batch reads the state that the one before assigned. Throws Error if there is no loss, nothing to
/// train, or a trained state that the forward graph assigns.
TrainingGraph training_graph(const Graph& forward, const TrainingGraphOptions& options = {});

/// Returns the forward graph without the detaches of values that depend on no trained state: they stop
/// nothing, and later passes need not look past them.
Graph remove_detaches(const Graph& forward);

/// Returns the forward graph alone, with its floating-point results scaled by 1/replicas.
TrainingGraph evaluation_graph(const Graph& forward, int replicas);

}  // namespace tandem::engine
