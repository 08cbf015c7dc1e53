#pragma once
#include <cstdint>
#include <vector>

#include <tandem/core/graph/kernel.h>
#include <tandem/core/graph/tensor.h>
#include <tandem/ops/apply.h>

namespace tandem::engine {

/// How the rows of a table's gradient lie in the inputs of a SparseSgdUpdateOp.
struct TableGradient {
  /// The number of pairs of ids and rows in each part. The rows of a part are added first, then the parts of
  /// a replica, as the gradients of micro-batches are, then the replicas.
  std::vector<int> parts{1};
  int replicas = 0;   ///< above 0: ids and rows have a leading axis of replicas
  bool bag = false;   ///< ids (N,K,L) and gradients (N,K,F) of bags, of which table `table` takes its own
  bool mean = false;  ///< the bags are means
  int table = 0;

  int pairs() const;
};

/// table w (V,…), lr [], then pairs of ids i32 (I…) and rows (I…,…) -> w': a step of SGD without momentum and
/// decay, w' = w − lr·g, in the rows that ids name; g is the sum of their rows, which no array holds. Rows
/// are added in the order of EmbeddingGradOp or EmbeddingBagGradOp, of micro-batches, and of AllReduceOp, so
/// that w' has the bits of a dense update. Ids outside the table throw Error when the op runs, except −1 in
/// bags.
class SparseSgdUpdateOp final : public Op {
 public:
  explicit SparseSgdUpdateOp(TableGradient gradient) : gradient(std::move(gradient)) {}
  std::string_view name() const override { return "sparse_sgd_update"; }
  std::string attributes() const override;
  Types infer(TypesView inputs) const override;
  Tensors vjp(const VjpArgs& args) const override;
  Tensors vmap(const VmapArgs& args) const override { return map_over_models(*this, args); }
  Work cost(TypesView inputs, TypesView outputs) const override;
  std::vector<Alias> may_alias(TypesView) const override { return {{0, 0, Alias::in_place}}; }
  const TableGradient gradient;
};
/// Applies a SparseSgdUpdateOp; `pairs` are ids and rows in turn.
Tensor sparse_sgd_update(const Tensor& w, const Tensor& lr, const Tensors& pairs,
                         TableGradient gradient = {});

/// Finds the rows of a launch of SparseSgdUpdateOp.
class TableRows {
 public:
  /// A row to add: `order` is its number among all, in the order in which they are added.
  struct Row {
    std::int32_t id, order;
  };
  /// Where a row is.
  struct Place {
    int replica, part;
    const void* data;
    std::int64_t divisor;
  };

  TableRows(const TableGradient& gradient, TypesView inputs);
  std::int64_t count() const { return replicas_ * of_replica_; }  ///< most rows of a launch
  std::int64_t features() const { return features_; }             ///< elements of a row
  /// Writes the rows that have an id to an array of `count`, in order. Returns their number. Throws Error
  /// naming an id outside the table.
  std::int64_t list(const Launch& l, Row* rows) const;
  Place place(const Launch& l, std::int32_t order) const;

 private:
  struct Pair {
    int input;  // the number of its ids among the inputs
    int part;
    std::int64_t rows;                    // of a replica
    std::int64_t tables = 1, places = 1;  // K and L of bags
  };
  std::int32_t id(const Launch& l, const Pair& pair, int replica, std::int64_t row) const;

  const TableGradient gradient_;
  const int replicas_;
  const std::int64_t table_rows_, features_, row_bytes_;
  std::int64_t of_replica_ = 0;
  std::vector<Pair> pairs_;
};

}  // namespace tandem::engine
