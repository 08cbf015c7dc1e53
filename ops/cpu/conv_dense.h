#pragma once
#include <tandem/ops/conv.h>
#include <tandem/ops/launch_operands.h>

namespace tandem::engine {

/// Convolutions of images that are smaller than the kernel, computed as matrix products. A convolution is a
/// linear map from the image's pixels to the output's. If a tap of the kernel connects nearly every such
/// pair, the map's dense matrix needs fewer multiplications than the convolution, which multiplies mostly
/// padding. The matrix takes (output pixels·out)·(pixels·in) elements of the workspace.

/// Returns true if the product is faster: it has less than half the multiplications, and enough samples share
/// the matrix. In bf16, products of patches (conv_unfolded.h) are faster for fewer than 96 samples, and the
/// library (2.6) takes up to four times as long for some batches that are no multiple of 32. Measured with
/// AMX on one thread, 512 filters of 3×3 on (128,2,2,512): forward 1.8 ms, and 2.7 ms as a product of
/// patches; the gradient of the input 2.5 and 2.8 ms.
bool dense_conv_is_faster(const Conv2dSize& size, DType dtype);

/// Make kernels for f32, the first two also for bf16. Return null for other types, or if there is no kernel
/// for the product. In bf16, the gradient of the weights is faster as a product of patches: 3.7 ms, and 5.1
/// ms so.
KernelPtr make_dense_conv2d(const KernelSpec& spec, const Conv2dSize& size);
KernelPtr make_dense_conv2d_grad_input(const KernelSpec& spec, const Conv2dSize& size);
KernelPtr make_dense_conv2d_grad_weight(const KernelSpec& spec, const Conv2dSize& size);

}  // namespace tandem::engine
