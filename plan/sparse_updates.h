#pragma once
#include <string>
#include <vector>

#include <tandem/autograd/training_graph.h>

namespace tandem::engine {

/// How a training step updates a table, a trained state whose rows are looked up (EmbeddingOp,
/// EmbeddingBagOp).
struct TableUpdate {
  std::string path;     ///< of the table
  std::string why_not;  ///< why the update is dense; empty: it is sparse
};

/// Replaces the gradients, all-reduces and updates of tables by sparse updates: the ids and rows of all
/// micro-batches, gathered from all replicas, update only the rows that they name (SparseSgdUpdateOp). No
/// array of the table's size is made, and the updated table has the same bits.
///
/// A table's update is sparse if its gradient comes from lookups of one stage alone, no rule over all
/// gradients reads it, and the update is SGD without momentum and weight decay. `report`, if not null, gets
/// all tables. If one update is sparse, the result names no gradients and no `update_if`: later passes read
/// neither. Comes after the updates and before the timing.
TrainingGraph sparse_updates(TrainingGraph training, std::vector<TableUpdate>* report = nullptr);

}  // namespace tandem::engine
