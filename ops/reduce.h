#pragma once
#include <vector>

#include <tandem/core/op.h>
#include <tandem/core/tensor.h>

namespace tandem {

enum class Reduction : std::uint8_t { sum, mean, max };
std::string_view name_of(Reduction kind);

/// Sum, mean or maximum over axes. Of u8 and bool the sum is i32; the mean of integers is an Error. NaN
/// counts as the maximum, here and below.
class Reduce final : public Op {
 public:
  /// `axes` ascending, 0 … rank−1.
  Reduce(Reduction kind, std::vector<int> axes, bool keep_dims)
      : kind(kind), axes(std::move(axes)), keep_dims(keep_dims) {}
  std::string_view name() const override { return "reduce"; }
  std::string attributes() const override;
  Types infer(std::span<const TensorType> inputs) const override;
  Tensors vjp(const VjpArgs& args) const override;
  Tensors batch(const BatchArgs& args) const override;
  Work cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const override;
  std::vector<Alias> may_alias(std::span<const TensorType>) const override { return {}; }

  const Reduction kind;
  const std::vector<int> axes;
  const bool keep_dims;
};

/// bool of the input's shape: true at the first maximum along the axes, once per reduced group. Where the
/// gradient of a maximum goes.
class FirstMax final : public Op {
 public:
  explicit FirstMax(std::vector<int> axes) : axes(std::move(axes)) {}
  std::string_view name() const override { return "first_max"; }
  std::string attributes() const override;
  Types infer(std::span<const TensorType> inputs) const override;
  Tensors vjp(const VjpArgs& args) const override;
  Tensors batch(const BatchArgs& args) const override;
  Work cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const override;
  std::vector<Alias> may_alias(std::span<const TensorType>) const override { return {}; }

  const std::vector<int> axes;
};

/// Index (i32) of the first maximum along the last axis, which goes.
class ArgMax final : public Op {
 public:
  std::string_view name() const override { return "argmax"; }
  Types infer(std::span<const TensorType> inputs) const override;
  Tensors vjp(const VjpArgs& args) const override;
  Tensors batch(const BatchArgs& args) const override;
  Work cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const override;
  std::vector<Alias> may_alias(std::span<const TensorType>) const override { return {}; }
};

/// Over `axes` (negative counts from the end), or over all of them. `keep_dims` leaves extents of 1.
Tensor sum(const Tensor& x, std::vector<int> axes, bool keep_dims = false);
Tensor sum(const Tensor& x);
Tensor mean(const Tensor& x, std::vector<int> axes, bool keep_dims = false);
Tensor mean(const Tensor& x);
/// Its gradient goes to the first maximum.
Tensor max(const Tensor& x, std::vector<int> axes, bool keep_dims = false);
Tensor max(const Tensor& x);

/// (…, C) -> i32 (…).
Tensor argmax(const Tensor& x);

/// Sums over the axes along which `shape` broadcasts to the shape of `x`: the gradient of broadcasting. `x`
/// itself where the shape is its own.
Tensor sum_to(const Tensor& x, const Shape& shape);

}  // namespace tandem
