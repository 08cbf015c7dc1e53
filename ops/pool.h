#pragma once
#include <tandem/ops/apply.h>
#include <tandem/ops/window.h>

namespace tandem {

struct Pool2dOptions {
  Size2 kernel;
  Size2 stride = 0;   ///< 0: the kernel's size
  Size2 padding = 0;  ///< at most half the kernel
  bool count_include_pad =
      true;  ///< averages divide by the kernel's area instead of the covered pixels (PyTorch's default)
  Pool2dOptions(Size2 kernel, Size2 stride = 0, Size2 padding = 0, bool count_include_pad = true);
  Pool2dOptions(std::int64_t kernel) : Pool2dOptions(Size2(kernel)) {}
  /// Windows that cut an image of any H × W into `output` parts: along H, window o covers pixels ⌊o·H/Ho⌋ up
  /// to, but not including, ⌈(o+1)·H/Ho⌉.
  static Pool2dOptions adaptive(Size2 output);
  Size2 output = 0;  ///< number of adaptive windows; 0: sliding windows
};

/// x (N,H,W,C) -> (N,Ho,Wo,C) with Ho = ⌊(H + 2·padding − kernel)/stride⌋ + 1. Padding is never the maximum;
/// in a mean it counts as zero. The gradient of a maximum goes to the first of equal pixels. Throws Error
/// naming the extents that do not fit.
Tensor max_pool2d(const Tensor& x, const Pool2dOptions& options);
Tensor avg_pool2d(const Tensor& x, const Pool2dOptions& options);
/// x (N,H,W,C) -> (N,output.h,output.w,C), with the windows of Pool2dOptions::adaptive.
Tensor adaptive_max_pool2d(const Tensor& x, Size2 output);
Tensor adaptive_avg_pool2d(const Tensor& x, Size2 output);
/// x (N,H,W,C) -> (N,C): the mean, or the maximum, of each channel of each image.
Tensor global_avg_pool2d(const Tensor& x);
Tensor global_max_pool2d(const Tensor& x);

}  // namespace tandem

namespace tandem::engine {

/// The base of the pooling ops: their options.
class Pool2dOp : public Op {
 public:
  explicit Pool2dOp(Pool2dOptions options) : options(options) {}
  std::string attributes() const override;
  Precision precision() const override { return Precision::follows; }
  Work cost(TypesView inputs, TypesView outputs) const override;
  std::vector<Alias> may_alias(TypesView) const override { return {}; }
  const Pool2dOptions options;
};

/// x (N,H,W,C) -> y (N,Ho,Wo,C), index (N,Ho,Wo,C): the largest pixel of each window, and the number of its
/// tap, counted row by row. A NaN counts as the largest; of equal pixels the first counts. The index is u8,
/// or i32 if the largest window has more than 256 taps.
class MaxPool2dOp final : public Pool2dOp {
 public:
  using Pool2dOp::Pool2dOp;
  std::string_view name() const override { return "max_pool2d"; }
  Types infer(TypesView inputs) const override;
  Tensors vjp(const VjpArgs& args) const override;
  Tensors vmap(const VmapArgs& args) const override { return map_over_models(*this, args); }
};

/// grad_output, index (N,Ho,Wo,C) -> (N,H,W,C): adds each gradient to the pixel that its index names.
class MaxPool2dGradOp final : public Pool2dOp {
 public:
  MaxPool2dGradOp(Pool2dOptions options, Size2 image) : Pool2dOp(options), image(image) {}
  std::string_view name() const override { return "max_pool2d_grad"; }
  std::string attributes() const override;
  Types infer(TypesView inputs) const override;
  Tensors vjp(const VjpArgs& args) const override;
  Tensors vmap(const VmapArgs& args) const override { return map_over_models(*this, args); }
  const Size2 image;
};

/// x (N,H,W,C), index (N,Ho,Wo,C) -> (N,Ho,Wo,C): the pixels that the indices name.
class MaxPool2dTakeOp final : public Pool2dOp {
 public:
  using Pool2dOp::Pool2dOp;
  std::string_view name() const override { return "max_pool2d_take"; }
  Types infer(TypesView inputs) const override;
  Tensors vjp(const VjpArgs& args) const override;
  Tensors vmap(const VmapArgs& args) const override { return map_over_models(*this, args); }
};

/// x (N,H,W,C) -> (N,Ho,Wo,C): the mean of each window.
class AvgPool2dOp final : public Pool2dOp {
 public:
  using Pool2dOp::Pool2dOp;
  std::string_view name() const override { return "avg_pool2d"; }
  Types infer(TypesView inputs) const override;
  Tensors vjp(const VjpArgs& args) const override;
  Tensors vmap(const VmapArgs& args) const override { return map_over_models(*this, args); }
};

/// grad_output (N,Ho,Wo,C) -> (N,H,W,C): gives each pixel its share of the gradients of its windows.
class AvgPool2dGradOp final : public Pool2dOp {
 public:
  AvgPool2dGradOp(Pool2dOptions options, Size2 image) : Pool2dOp(options), image(image) {}
  std::string_view name() const override { return "avg_pool2d_grad"; }
  std::string attributes() const override;
  Types infer(TypesView inputs) const override;
  Tensors vjp(const VjpArgs& args) const override;
  Tensors vmap(const VmapArgs& args) const override { return map_over_models(*this, args); }
  const Size2 image;
};

/// The windows along one axis of an image.
struct PoolAxis {
  std::int64_t extent, positions;  ///< extents of the image and of the output
  std::int64_t kernel;             ///< taps of the largest window; adaptive: that number or one more
  std::int64_t stride, padding;
  bool adaptive;
  /// Return the first pixel under the window at `position`, and one past the last. With padding, some lie
  /// outside the image.
  std::int64_t begin(std::int64_t position) const;
  std::int64_t end(std::int64_t position) const;
};

/// Extents of a pooling, for kernels: image (n,h,w,channels), output (n,oh,ow,channels).
struct Pool2dSize {
  std::int64_t n, channels;
  Size2 image, output;
  PoolAxis h, w;
  bool count_include_pad;
  /// Returns the divisor of the window's sum at row `oh` and column `ow` of the output.
  double divisor(std::int64_t oh, std::int64_t ow) const;
};
Pool2dSize pool2d_size(const Pool2dOptions& options, const TensorType& image, const TensorType& output);

}  // namespace tandem::engine
