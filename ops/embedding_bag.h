#pragma once
#include <vector>

#include <tandem/ops/apply.h>

namespace tandem::engine {

/// tables (V₀,F), …, (V_{K−1},F), ids i32 (N,K,L) -> (N,K,F): for each sample and table, the sum or the mean
/// of the rows that its L ids name, in the order of the ids. −1 names no row; without any the result is 0. A
/// mean divides by the number of rows that are named. Throws Error, when it runs, naming an id outside its
/// table.
class EmbeddingBagOp final : public Op {
 public:
  explicit EmbeddingBagOp(bool mean) : mean(mean) {}
  std::string_view name() const override { return "embedding_bag"; }
  std::string attributes() const override;
  Types infer(TypesView inputs) const override;
  Tensors vjp(const VjpArgs& args) const override;
  Tensors vmap(const VmapArgs& args) const override { return map_over_models(*this, args); }
  Work cost(TypesView inputs, TypesView outputs) const override;
  std::vector<Alias> may_alias(TypesView) const override { return {}; }
  const bool mean;
};

/// The gradient of the result (N,K,F), ids (N,K,L) -> the gradients of the tables, in which each row is the
/// sum over the ids that name it, in their order. EmbeddingBagOp is its derivative.
class EmbeddingBagGradOp final : public Op {
 public:
  EmbeddingBagGradOp(bool mean, std::vector<std::int64_t> rows) : mean(mean), rows(std::move(rows)) {}
  std::string_view name() const override { return "embedding_bag_grad"; }
  std::string attributes() const override;
  Types infer(TypesView inputs) const override;
  Tensors vjp(const VjpArgs& args) const override;
  Tensors vmap(const VmapArgs& args) const override { return map_over_models(*this, args); }
  Work cost(TypesView inputs, TypesView outputs) const override;
  std::vector<Alias> may_alias(TypesView) const override { return {}; }
  const bool mean;
  const std::vector<std::int64_t> rows;  ///< V₀ … V_{K−1}
};

/// The extents of an embedding bag and its ids.
struct BagIds {
  const std::int32_t* ids;  ///< (N,K,L)
  std::int64_t samples, tables, places;

  BagIds(const TensorType& type, const void* ids);
  const std::int32_t* of(std::int64_t sample, std::int64_t table) const {
    return ids + (sample * tables + table) * places;
  }
  /// Returns by what the rows of a bag are divided; 0 if there is none.
  std::int64_t divisor(std::int64_t sample, std::int64_t table, bool mean) const;
  /// Throws Error naming the first id that is neither −1 nor a row of its table, its sample and place.
  void check(const std::vector<std::int64_t>& rows) const;
};

}  // namespace tandem::engine

namespace tandem {

enum class BagMode : std::uint8_t { sum, mean };

/// Returns (N,K,F): for each sample and each of K tables (Vₖ,F), the sum or the mean of the rows that `ids`
/// (N,K,L) names. −1 names no row. Ids are i32, i64 or u8. Throws Error if the shapes do not fit.
Tensor embedding_bag(const Tensors& tables, const Tensor& ids, BagMode mode = BagMode::sum);

}  // namespace tandem
