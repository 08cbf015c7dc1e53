#pragma once
#include <tandem/ops/conv.h>
#include <tandem/ops/cpu/onednn.h>
#include <tandem/ops/launch_operands.h>

namespace tandem::engine {

/// Two ways to compute the gradient of a convolution's weights without the library's own team of
/// threads, which adds its partial sums between barriers that spin: beside one busy process a step of
/// ResNet-20 took four times its quiet time.

/// For images of few pixels in bf16: one product of the output's gradient and the image's patches, which are
/// unfolded in the workspace. Measured with oneDNN 2.6 and AMX, on two threads: (128,2,2,512) 27 ms by the
/// library's convolution, 2 ms so. Returns null if the images are larger, or there is no kernel for the
/// product.
KernelPtr make_unfolded_conv2d_grad_weight(const KernelSpec& spec, const Conv2dSize& size, onednn::Team team);

/// For the others: each thread computes the gradient by an equal share of the samples, in f32, and the shares
/// are added in their order. In f32, where the library's convolution is faster by a tenth on a quiet machine,
/// only for small images and few weights: there it is not, and takes nine times as long beside a busy
/// process. `x`, `y` are the image and the output's gradient, `w` and `bias` (or null) the gradients to
/// compute. Returns null if the samples cannot be shared, or there is no kernel.
KernelPtr make_shared_conv2d_grad_weight(onednn::Operand x, onednn::Operand y, onednn::Operand w,
                                         const onednn::Operand* bias, const Window& window,
                                         onednn::Team team);

}  // namespace tandem::engine
