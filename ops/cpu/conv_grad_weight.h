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

/// The gradient of the weights of strided and of tall windows in f32, as products with the image's patches.
/// Each thread takes an equal share of the output's pixels, copies the patches of as many at a time as fit
/// its cache, and multiplies them at once; the shares are added in their order. Measured with oneDNN 2.6 on
/// two threads with AVX-512, in GFLOP/s of at most 560:
///
///     n, h, channels → filters, kernel            products, library
///      8, 147,  64 →   96, 3×3, stride 2          419, 177
///      8,  71, 192 →  192, 3×3, stride 2          439, 265
///     16,  56, 128 →  128, 3×3, stride 2          428, 260
///     16,  28, 256 →  256, 3×3, stride 2          442, 313
///     16,  14, 512 →  512, 3×3, stride 2          353, 340
///      8,  37, 256 →  728, 1×1, stride 2          487, 296
///     16,  28, 512 → 1024, 1×1, stride 2          421, 403
///      8,  73,  64 →   64, 7×1                    416, 334
///      8,  17, 224 →  256, 7×1                    484, 421
///
/// The library is faster for 16 channels, for most 1×1 kernels without a stride, and for wide kernels.
/// Returns null for other windows, with a bias, for large workspaces, and without the library.
KernelPtr make_patches_conv2d_grad_weight(const KernelSpec& spec, const Conv2dSize& size, onednn::Team team);

}  // namespace tandem::engine
