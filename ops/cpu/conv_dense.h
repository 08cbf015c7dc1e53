#pragma once
#include <tandem/core/graph/kernel.h>
#include <tandem/ops/conv.h>

namespace tandem::engine {

/// Convolutions of images that are smaller than the kernel, as products. A convolution is a linear map from
/// the image's pixels to the output's; where nearly each pair of them has a tap of the kernel in common, the
/// map's dense matrix has fewer elements than a convolution has multiplications, most of which are with the
/// padding. The matrix takes (output pixels·out)·(pixels·in) elements of the workspace.

/// Whether that is faster: the products are fewer by half, and enough of them share the matrix.
bool dense_conv_is_faster(const Conv2dSize& size);

/// Kernels for f32. Null where there is no product kernel.
KernelPtr make_dense_conv2d(const KernelSpec& spec, const Conv2dSize& size);
KernelPtr make_dense_conv2d_grad_input(const KernelSpec& spec, const Conv2dSize& size);
KernelPtr make_dense_conv2d_grad_weight(const KernelSpec& spec, const Conv2dSize& size);

}  // namespace tandem::engine
