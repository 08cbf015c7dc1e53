#pragma once
#include <tandem/core/graph/op.h>
#include <tandem/core/graph/tensor.h>
#include <tandem/ops/window.h>

namespace tandem {

struct Pool2dOptions {
  Size2 kernel;
  Size2 stride = 0;   ///< 0: the kernel's size
  Size2 padding = 0;  ///< at most half the kernel
  bool count_include_pad =
      true;  ///< averages divide by the kernel's area, not by the pixels it covers (PyTorch's default)
  Pool2dOptions(Size2 kernel, Size2 stride = 0, Size2 padding = 0, bool count_include_pad = true);
  Pool2dOptions(std::int64_t kernel) : Pool2dOptions(Size2(kernel)) {}
  /// Windows that cut any image of H × W into `output`: number o covers pixels ⌊o·H/Ho⌋ to ⌈(o+1)·H/Ho⌉.
  static Pool2dOptions adaptive(Size2 output);
  Size2 output = 0;  ///< of adaptive windows; 0: windows that slide
};

}  // namespace tandem

namespace tandem::engine {

/// What the pooling ops share: batching model by model, and the check of their window.
class Pool2dOp : public Op {
 public:
  explicit Pool2dOp(Pool2dOptions options) : options(options) {}
  std::string attributes() const override;
  Tensors vmap(const VmapArgs& args) const override;
  Precision precision() const override { return Precision::follows; }
  Work cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const override;
  std::vector<Alias> may_alias(std::span<const TensorType>) const override { return {}; }
  const Pool2dOptions options;

 protected:
  virtual OpPtr clone() const = 0;
};

/// x (N,H,W,C) -> y (N,Ho,Wo,C), index (N,Ho,Wo,C): the largest pixel of each window, and which tap it is,
/// numbered row by row; the first of equals, a NaN before all. The index is u8, or i32 for more than 256
/// taps of the largest window.
class MaxPool2dOp final : public Pool2dOp {
 public:
  using Pool2dOp::Pool2dOp;
  std::string_view name() const override { return "max_pool2d"; }
  Types infer(std::span<const TensorType> inputs) const override;
  Tensors vjp(const VjpArgs& args) const override;

 protected:
  OpPtr clone() const override { return std::make_shared<MaxPool2dOp>(options); }
};

/// grad_output, index (N,Ho,Wo,C) -> (N,H,W,C): each gradient goes to the pixel that its index names.
class MaxPool2dGradOp final : public Pool2dOp {
 public:
  MaxPool2dGradOp(Pool2dOptions options, Size2 image) : Pool2dOp(options), image(image) {}
  std::string_view name() const override { return "max_pool2d_grad"; }
  std::string attributes() const override;
  Types infer(std::span<const TensorType> inputs) const override;
  Tensors vjp(const VjpArgs& args) const override;
  const Size2 image;

 protected:
  OpPtr clone() const override { return std::make_shared<MaxPool2dGradOp>(options, image); }
};

/// x (N,H,W,C), index (N,Ho,Wo,C) -> (N,Ho,Wo,C): the pixels that the indices name.
class MaxPool2dTakeOp final : public Pool2dOp {
 public:
  using Pool2dOp::Pool2dOp;
  std::string_view name() const override { return "max_pool2d_take"; }
  Types infer(std::span<const TensorType> inputs) const override;
  Tensors vjp(const VjpArgs& args) const override;

 protected:
  OpPtr clone() const override { return std::make_shared<MaxPool2dTakeOp>(options); }
};

/// x (N,H,W,C) -> (N,Ho,Wo,C): the mean of each window.
class AvgPool2dOp final : public Pool2dOp {
 public:
  using Pool2dOp::Pool2dOp;
  std::string_view name() const override { return "avg_pool2d"; }
  Types infer(std::span<const TensorType> inputs) const override;
  Tensors vjp(const VjpArgs& args) const override;

 protected:
  OpPtr clone() const override { return std::make_shared<AvgPool2dOp>(options); }
};

/// grad_output (N,Ho,Wo,C) -> (N,H,W,C): each pixel gets its share of its windows' gradients.
class AvgPool2dGradOp final : public Pool2dOp {
 public:
  AvgPool2dGradOp(Pool2dOptions options, Size2 image) : Pool2dOp(options), image(image) {}
  std::string_view name() const override { return "avg_pool2d_grad"; }
  std::string attributes() const override;
  Types infer(std::span<const TensorType> inputs) const override;
  Tensors vjp(const VjpArgs& args) const override;
  const Size2 image;

 protected:
  OpPtr clone() const override { return std::make_shared<AvgPool2dGradOp>(options, image); }
};

}  // namespace tandem::engine

namespace tandem {

/// x (N,H,W,C) -> (N,Ho,Wo,C) with Ho = ⌊(H + 2·padding − kernel)/stride⌋ + 1. Padding never is the maximum;
/// in a mean it counts as zero. The gradient of a maximum goes to the first of equals. Throws Error naming
/// what does not fit.
Tensor max_pool2d(const Tensor& x, const Pool2dOptions& options);
Tensor avg_pool2d(const Tensor& x, const Pool2dOptions& options);
/// x (N,H,W,C) -> (N,output.h,output.w,C) by windows that cut the image into so many
/// (Pool2dOptions::adaptive).
Tensor adaptive_max_pool2d(const Tensor& x, Size2 output);
Tensor adaptive_avg_pool2d(const Tensor& x, Size2 output);
/// x (N,H,W,C) -> (N,C): the mean, or the maximum, of each channel's image.
Tensor global_avg_pool2d(const Tensor& x);
Tensor global_max_pool2d(const Tensor& x);

}  // namespace tandem

namespace tandem::engine {

/// The windows along one axis of an image.
struct PoolAxis {
  std::int64_t extent, positions;  ///< of the image, of the output
  std::int64_t kernel;             ///< taps of the largest window, or one more where its windows are adaptive
  std::int64_t stride, padding;
  bool adaptive;
  /// The pixels under the window at `position`; with padding, some lie outside the image.
  std::int64_t begin(std::int64_t position) const;
  std::int64_t end(std::int64_t position) const;
};

/// Extents of a pooling, for kernels: image (n,h,w,channels), output (n,oh,ow,channels).
struct Pool2dSize {
  std::int64_t n, channels;
  Size2 image, output;
  PoolAxis h, w;
  bool count_include_pad;
  /// What a window's sum is divided by, at row `oh` and column `ow` of the output.
  double divisor(std::int64_t oh, std::int64_t ow) const;
};
Pool2dSize pool2d_size(const Pool2dOptions& options, const TensorType& image, const TensorType& output);

}  // namespace tandem::engine
