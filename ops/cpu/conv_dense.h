#pragma once
#include <tandem/ops/conv.h>
#include <tandem/ops/launch_operands.h>

namespace tandem::engine {

/// Convolutions of images that are smaller than the kernel, computed as matrix products. A convolution is a
/// linear map from the image's pixels to the output's. If a tap of the kernel connects nearly every such
/// pair, the map's dense matrix needs fewer multiplications than the convolution, which multiplies mostly
/// padding. The matrix takes (output pixels·out)·(pixels·in) elements of the workspace.

/// Returns true if the product is faster: it has less than half the multiplications, and enough samples share
/// the matrix.
bool dense_conv_is_faster(const Conv2dSize& size);

/// Make kernels for f32. Return null if there is no kernel for the product.
KernelPtr make_dense_conv2d(const KernelSpec& spec, const Conv2dSize& size);
KernelPtr make_dense_conv2d_grad_input(const KernelSpec& spec, const Conv2dSize& size);
KernelPtr make_dense_conv2d_grad_weight(const KernelSpec& spec, const Conv2dSize& size);

}  // namespace tandem::engine
