#pragma once
#include <tandem/ops/conv.h>
#include <tandem/ops/cpu/onednn.h>
#include <tandem/ops/launch_operands.h>

namespace tandem::engine {

/// Convolutions in bf16 of images of at most 16 pixels, to at most 16 pixels, computed as matrix products
/// with the images' patches. The patches lie in the workspace, which has at most 24 MiB, as the library's
/// convolutions have (docs/design.md). The samples, or the taps of the kernel, are unfolded and multiplied in
/// blocks. The library's convolutions leave most of AMX's tiles empty for such images, and its gradient of
/// the weights adds partial sums between barriers that spin. Measured with oneDNN 2.6 and AMX on one thread,
/// in ms, for n samples of h×h pixels:
///
///     n, h, channels → filters, kernel  forward: product, library  input: p., l.  weights: p., l.
///     128, 2, 512 → 512, 3×3                        2.7,   21         2.8, 22          3.7, 50
///     128, 4, 512 → 512, 3×3                         11,   22          13, 29           12, 59
///       1, 4, 512 → 512, 3×3                        0.2,  0.7         0.5, 0.7         1.0, 1.5
///     128, 4, 256 → 512, 3×3, stride 2              1.1,  8.0         1.5, 11          1.7, 30
///     128, 4, 512 → 512, 1×1                        0.7,  0.7         1.5, 1.8         1.3, 11
///     128, 4, 256 → 256, 3×3                        2.4,  2.1         5.5, 3.6         3.0, 13
///     128, 4, 512 → 64, 3×3                         2.0,  1.1         8.1, 1.5         3.4, 5.8
///
/// Return null for other types, larger images, groups, and larger workspaces, or if there is no kernel for
/// the product. The first two also return null without AMX, where the library takes 0.5 to 1.2 times the
/// product's time, and if there are few filters.
KernelPtr make_unfolded_conv2d(const KernelSpec& spec, const Conv2dSize& size, onednn::Team team);
KernelPtr make_unfolded_conv2d_grad_input(const KernelSpec& spec, const Conv2dSize& size, onednn::Team team);
/// Without AMX, 512 filters of 3×3 take 22 ms for (128,2,2,512), the library 44 ms; for (128,4,4,512) 88 and
/// 81 ms, but the library's workspace grows with the team.
KernelPtr make_unfolded_conv2d_grad_weight(const KernelSpec& spec, const Conv2dSize& size, onednn::Team team);

}  // namespace tandem::engine
