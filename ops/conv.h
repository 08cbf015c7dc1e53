#pragma once
#include <tandem/ops/apply.h>
#include <tandem/ops/window.h>

namespace tandem {

struct Conv2dOptions {
  Size2 stride = 1, padding = 0, dilation = 1;
  std::int64_t groups = 1;  ///< output channels of group g read only the input channels of group g
};

/// x (N,H,W,C), weight (O,Kh,Kw,C/groups), bias (O) or undefined -> (N,Ho,Wo,O) with
/// Ho = ⌊(H + 2·padding − dilation·(Kh−1) − 1)/stride⌋ + 1. Throws Error naming shapes that do not fit.
/// Padding is zeros. Whether the product of such a zero and an infinite or NaN weight is NaN depends on the
/// processor and the shapes. The same holds for the gradient of the weights: if the gradient of the output is
/// infinite or NaN, even taps that see only padding can get NaN.
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
              const Conv2dOptions& options = {});
struct ConvTranspose2dOptions {
  Size2 stride = 1, padding = 0;
  Size2 output_padding =
      0;  ///< extra rows and columns, less than the stride: selects one of several possible output sizes
  Size2 dilation = 1;
  std::int64_t groups = 1;
};
/// x (N,H,W,C), weight (C,Kh,Kw,O/groups), bias (O) or undefined -> (N,Ho,Wo,O) with
/// Ho = (H−1)·stride − 2·padding + dilation·(Kh−1) + output_padding + 1. Computes the gradient of the image
/// of a convolution with this weight from (N,Ho,Wo,O) to (N,H,W,C), given the gradient `x` of its output.
/// Throws Error naming shapes that do not fit.
Tensor conv_transpose2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                        const ConvTranspose2dOptions& options = {});

}  // namespace tandem

namespace tandem::engine {

/// Extents of a convolution: image (n,h,w,in), weights (out,kernel.h,kernel.w,in/groups), output
/// (n,oh,ow,out).
struct Conv2dSize {
  std::int64_t n, in, out, groups;
  Size2 image, output;
  Window window;
  /// Returns the pixel of the image that tap `tap` of the kernel reads for pixel `output`, or −1 if it reads
  /// padding. Pixels and taps are numbered by rows.
  std::int64_t pixel_under(std::int64_t output, std::int64_t tap) const;
};

/// The base of a convolution and its two derivatives. The three are the partial derivatives of one trilinear
/// form, so the derivatives of each are the other two.
class ConvolutionOp : public Op {
 public:
  explicit ConvolutionOp(Conv2dOptions options) : options(options) {}
  std::string attributes() const override;
  Precision precision() const override { return Precision::low; }
  Work cost(TypesView inputs, TypesView outputs) const override;
  std::vector<Alias> may_alias(TypesView) const override { return {}; }

  /// Throws Error if the inputs do not fit; the caller adds their shapes to the message.
  virtual Conv2dSize size(TypesView inputs) const = 0;
  const Conv2dOptions options;
};

/// image (N,H,W,C), weights (O,Kh,Kw,C/groups) [, bias (O)] -> (N,Ho,Wo,O). Computes a cross-correlation, as
/// all frameworks do. The kernel chooses at which point of the sum it adds the bias, so the rounding differs
/// between kernels.
class Conv2dOp final : public ConvolutionOp {
 public:
  using ConvolutionOp::ConvolutionOp;
  std::string_view name() const override { return "conv2d"; }
  Types infer(TypesView inputs) const override;
  Tensors vjp(const VjpArgs& args) const override;
  Tensors vmap(const VmapArgs& args) const override { return map_over_models(*this, args); }
  Conv2dSize size(TypesView inputs) const override;
};

/// grad_output (N,Ho,Wo,O), weights (O,Kh,Kw,C/groups) -> gradient of the image (N,H,W,C). This is a
/// transposed convolution.
class Conv2dGradInputOp final : public ConvolutionOp {
 public:
  Conv2dGradInputOp(Conv2dOptions options, Size2 image) : ConvolutionOp(options), image(image) {}
  std::string_view name() const override { return "conv2d_grad_input"; }
  std::string attributes() const override;
  Types infer(TypesView inputs) const override;
  Tensors vjp(const VjpArgs& args) const override;
  Tensors vmap(const VmapArgs& args) const override { return map_over_models(*this, args); }
  Conv2dSize size(TypesView inputs) const override;

  const Size2 image;  ///< H, W; with a stride above 1, images of several sizes give the same output size
};

/// image (N,H,W,C), grad_output (N,Ho,Wo,O) -> gradient of the weights (O,Kh,Kw,C/groups) [, of the bias
/// (O)].
class Conv2dGradWeightOp final : public ConvolutionOp {
 public:
  Conv2dGradWeightOp(Conv2dOptions options, Size2 kernel, bool bias)
      : ConvolutionOp(options), kernel(kernel), bias(bias) {}
  std::string_view name() const override { return "conv2d_grad_weight"; }
  std::string attributes() const override;
  Types infer(TypesView inputs) const override;
  Tensors vjp(const VjpArgs& args) const override;
  Tensors vmap(const VmapArgs& args) const override { return map_over_models(*this, args); }
  Conv2dSize size(TypesView inputs) const override;

  const Size2 kernel;
  const bool bias;
};

/// Return the gradients of conv2d with respect to `x`, an image of size `image`, and to the weights. If
/// `bias` is set, conv2d_grad_weight returns the gradient of the bias as its second result.
Tensor conv2d_grad_input(const Tensor& grad_output, const Tensor& weight, Size2 image,
                         const Conv2dOptions& options = {});
Tensors conv2d_grad_weight(const Tensor& x, const Tensor& grad_output, Size2 kernel, bool bias,
                           const Conv2dOptions& options = {});

}  // namespace tandem::engine
