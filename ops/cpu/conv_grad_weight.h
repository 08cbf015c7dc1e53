#pragma once
#include <tandem/ops/conv.h>
#include <tandem/ops/cpu/onednn.h>
#include <tandem/ops/launch_operands.h>

namespace tandem::engine {

/// The gradient of a convolution's weights without the library's own team of threads, which adds its partial
/// sums between barriers that spin: beside one busy process a step of ResNet-20 took four times its quiet
/// time. Each thread computes the gradient by an equal share of the samples, in f32, and the shares are added
/// in their order. In f32, where the library's convolution is faster by a tenth on a quiet machine, only for
/// small images and few weights: there it is not, and takes nine times as long beside a busy process. `x`,
/// `y` are the image and the output's gradient, `w` and `bias` (or null) the gradients to compute. Returns
/// null if the samples cannot be shared, or there is no kernel.
KernelPtr make_shared_conv2d_grad_weight(onednn::Operand x, onednn::Operand y, onednn::Operand w,
                                         const onednn::Operand* bias, const Window& window,
                                         onednn::Team team);

}  // namespace tandem::engine
