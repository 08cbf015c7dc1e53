#pragma once
#include <tandem/ops/conv.h>
#include <tandem/ops/cpu/onednn.h>
#include <tandem/ops/launch_operands.h>

namespace tandem::engine {

/// Convolutions of images of few pixels in bf16 as one matrix product each, with the images' patches, which
/// lie unfolded in the workspace. The library's convolutions leave most of AMX's tiles empty there, and its
/// team adds gradients of weights between barriers that spin. Measured with oneDNN 2.6 and AMX, on two
/// threads, 512 filters of 3×3 on (128,2,2,512), by the library and so: forward 9.5 and 2.1 ms, the gradients
/// of the input 11.2 and 3.5 ms, of the weights 27 and 2 ms; forward on (128,4,4,512) 10.7 and 7.0 ms. Without
/// AMX the first two are 2 to 8 % slower so, and left to the library. Each returns null then, if the images are
/// larger, or if there is no kernel for the product.
KernelPtr make_unfolded_conv2d(const KernelSpec& spec, const Conv2dSize& size, onednn::Team team);
KernelPtr make_unfolded_conv2d_grad_input(const KernelSpec& spec, const Conv2dSize& size, onednn::Team team);
KernelPtr make_unfolded_conv2d_grad_weight(const KernelSpec& spec, const Conv2dSize& size, onednn::Team team);

}  // namespace tandem::engine
