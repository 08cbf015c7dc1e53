#pragma once
#include <tandem/ops/apply.h>

namespace tandem::engine {

/// Ops that read or add elements and rows by index. Their indices are i32, checked when the op runs: an index
/// outside its axis throws Error naming the index, its position and the range.

/// x (…,K,…), index (…,J,…) -> (…,J,…) along `axis`: y[…,j,…] = x[…,index[…,j,…],…].
class GatherOp final : public Op {
 public:
  explicit GatherOp(int axis) : axis(axis) {}
  std::string_view name() const override { return "gather"; }
  std::string attributes() const override;
  Types infer(TypesView inputs) const override;
  Tensors vjp(const VjpArgs& args) const override;
  Tensors vmap(const VmapArgs& args) const override { return map_over_models(*this, args); }
  Work cost(TypesView inputs, TypesView outputs) const override;
  std::vector<Alias> may_alias(TypesView) const override { return {}; }
  const int axis;
};

/// source (…,J,…), index (…,J,…) [, onto (…,extent,…)] -> (…,extent,…) along `axis`: starts from `onto`, or
/// from zeros, and computes y[…,index[…,j,…],…] += source[…,j,…] in the order of j. GatherOp and ScatterAddOp
/// are each other's derivative.
class ScatterAddOp final : public Op {
 public:
  ScatterAddOp(int axis, std::int64_t extent) : axis(axis), extent(extent) {}
  std::string_view name() const override { return "scatter_add"; }
  std::string attributes() const override;
  Types infer(TypesView inputs) const override;
  Tensors vjp(const VjpArgs& args) const override;
  Tensors vmap(const VmapArgs& args) const override { return map_over_models(*this, args); }
  Work cost(TypesView inputs, TypesView outputs) const override;
  std::vector<Alias> may_alias(TypesView inputs) const override;
  const int axis;
  const std::int64_t extent;
};

/// table (V, …), ids (I…) -> (I…, …): rows of the table.
class EmbeddingOp final : public Op {
 public:
  std::string_view name() const override { return "embedding"; }
  Types infer(TypesView inputs) const override;
  Tensors vjp(const VjpArgs& args) const override;
  Tensors vmap(const VmapArgs& args) const override { return map_over_models(*this, args); }
  Work cost(TypesView inputs, TypesView outputs) const override;
  std::vector<Alias> may_alias(TypesView) const override { return {}; }
};

/// rows (I…, …), ids (I…) [, onto (V, …)] -> (V, …): starts from `onto`, or from zeros, and adds each row to
/// the row that its id names, in the order of the ids. EmbeddingOp and EmbeddingGradOp are each other's
/// derivative.
class EmbeddingGradOp final : public Op {
 public:
  explicit EmbeddingGradOp(std::int64_t count) : count(count) {}
  std::string_view name() const override { return "embedding_grad"; }
  std::string attributes() const override;
  Types infer(TypesView inputs) const override;
  Tensors vjp(const VjpArgs& args) const override;
  Tensors vmap(const VmapArgs& args) const override { return map_over_models(*this, args); }
  Work cost(TypesView inputs, TypesView outputs) const override;
  std::vector<Alias> may_alias(TypesView inputs) const override;
  const std::int64_t count;  ///< V
};

/// ids (I…) -> (I…, classes): 1 at the id, 0 at every other class.
class OneHotOp final : public StreamingOp {
 public:
  OneHotOp(std::int64_t classes, DType dtype) : classes(classes), dtype(dtype) {}
  std::string_view name() const override { return "one_hot"; }
  std::string attributes() const override;
  Types infer(TypesView inputs) const override;
  Tensors vjp(const VjpArgs& args) const override;
  Tensors vmap(const VmapArgs& args) const override;
  const std::int64_t classes;
  const DType dtype;
};

/// ids (i64 or u8) -> i32, the same numbers. Throws Error naming the first that i32 cannot hold.
class Index32Op final : public StreamingOp {
 public:
  std::string_view name() const override { return "index32"; }
  Types infer(TypesView inputs) const override;
  Tensors vjp(const VjpArgs&) const override { return {Tensor()}; }
  Tensors vmap(const VmapArgs& args) const override { return apply_op(*this, args.inputs); }
};
/// Returns indices of type i64 or u8 as i32, which the ops above take; other Tensors unchanged.
Tensor index32(const Tensor& indices);

}  // namespace tandem::engine

namespace tandem {

/// Indices are i32, i64 or u8.

/// Returns y (…,J,…) with y[…,j,…] = x[…,index[…,j,…],…] along `axis` (negative counts from the end). x is
/// (…,K,…); index (…,J,…) has the same other extents.
Tensor gather(const Tensor& x, int axis, const Tensor& index);
/// Returns x (…,K,…) plus source (…,J,…) added at the places along `axis` that index (…,J,…) names. The dtype
/// is floating, i32 or i64. In bf16 and f16, the source elements of one place are summed in f32 and rounded
/// once; then x is added.
Tensor scatter_add(const Tensor& x, int axis, const Tensor& index, const Tensor& source);
/// Returns the rows (I…, …) that ids (I…) name in a table (V, …) of any dtype.
Tensor embedding(const Tensor& table, const Tensor& ids);
/// Returns (I…, classes) from ids (I…): 1 at the id, 0 at every other class.
Tensor one_hot(const Tensor& ids, std::int64_t classes, DType dtype = DType::f32);

}  // namespace tandem
