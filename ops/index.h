#pragma once
#include <tandem/core/graph/op.h>
#include <tandem/core/graph/tensor.h>

namespace tandem::engine {

/// Elements and rows named by indices: i32, checked when the op runs. One outside its axis throws Error
/// naming it, its place and the range.

/// x (…,K,…), index (…,J,…) -> (…,J,…) along `axis`: y[…,j,…] = x[…,index[…,j,…],…].
class GatherOp final : public Op {
 public:
  explicit GatherOp(int axis) : axis(axis) {}
  std::string_view name() const override { return "gather"; }
  std::string attributes() const override;
  Types infer(std::span<const TensorType> inputs) const override;
  Tensors vjp(const VjpArgs& args) const override;
  Tensors vmap(const VmapArgs& args) const override;
  Work cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const override;
  std::vector<Alias> may_alias(std::span<const TensorType>) const override { return {}; }
  const int axis;
};

/// source (…,J,…), index (…,J,…) -> (…,extent,…) along `axis`: zeros, to which y[…,index[…,j,…],…] +=
/// source[…,j,…] in the order of j. The derivative of Gather, as Gather is its own.
class ScatterAddOp final : public Op {
 public:
  ScatterAddOp(int axis, std::int64_t extent) : axis(axis), extent(extent) {}
  std::string_view name() const override { return "scatter_add"; }
  std::string attributes() const override;
  Types infer(std::span<const TensorType> inputs) const override;
  Tensors vjp(const VjpArgs& args) const override;
  Tensors vmap(const VmapArgs& args) const override;
  Work cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const override;
  std::vector<Alias> may_alias(std::span<const TensorType>) const override { return {}; }
  const int axis;
  const std::int64_t extent;
};

/// table (V, …), ids (I…) -> (I…, …): rows of the table.
class EmbeddingOp final : public Op {
 public:
  std::string_view name() const override { return "embedding"; }
  Types infer(std::span<const TensorType> inputs) const override;
  Tensors vjp(const VjpArgs& args) const override;
  Tensors vmap(const VmapArgs& args) const override;
  Work cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const override;
  std::vector<Alias> may_alias(std::span<const TensorType>) const override { return {}; }
};

/// rows (I…, …), ids (I…) -> (V, …): each row added to that of its id, in the order of the ids. The
/// derivative of Embedding, as Embedding is its own.
class EmbeddingGradOp final : public Op {
 public:
  explicit EmbeddingGradOp(std::int64_t count) : count(count) {}
  std::string_view name() const override { return "embedding_grad"; }
  std::string attributes() const override;
  Types infer(std::span<const TensorType> inputs) const override;
  Tensors vjp(const VjpArgs& args) const override;
  Tensors vmap(const VmapArgs& args) const override;
  Work cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const override;
  std::vector<Alias> may_alias(std::span<const TensorType>) const override { return {}; }
  const std::int64_t count;  ///< V
};

/// ids (I…) -> (I…, classes): 1 at the id, 0 elsewhere.
class OneHotOp final : public Op {
 public:
  OneHotOp(std::int64_t classes, DType dtype) : classes(classes), dtype(dtype) {}
  std::string_view name() const override { return "one_hot"; }
  std::string attributes() const override;
  Types infer(std::span<const TensorType> inputs) const override;
  Tensors vjp(const VjpArgs& args) const override;
  Tensors vmap(const VmapArgs& args) const override;
  Work cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const override;
  std::vector<Alias> may_alias(std::span<const TensorType>) const override { return {}; }
  const std::int64_t classes;
  const DType dtype;
};

}  // namespace tandem::engine

namespace tandem {

/// Elements of x (…,K,…) along `axis` (negative counts from the end), by an index (…,J,…) whose other extents
/// are those of `x`.
Tensor gather(const Tensor& x, int axis, const Tensor& index);
/// x (…,K,…) with source (…,J,…) added where index (…,J,…) says, along `axis`; floating, i32 or i64.
/// In bf16 and f16 the sum at each place is f32's, rounded once, and x is added to that.
Tensor scatter_add(const Tensor& x, int axis, const Tensor& index, const Tensor& source);
/// Rows of a table (V, …) of any dtype by ids (I…): (I…, …).
Tensor embedding(const Tensor& table, const Tensor& ids);
/// ids (I…) -> (I…, classes).
Tensor one_hot(const Tensor& ids, std::int64_t classes, DType dtype = DType::f32);

}  // namespace tandem
