#pragma once
#include <tandem/core/graph/kernel.h>

namespace tandem::engine {

/// Fast kernels for f32, and of norms and pooling for bf16, run by a team of `spec.threads`. Each gives null
/// for types it leaves to the reference kernels. Unless it says otherwise, a kernel's result does not depend
/// on the size of the team.
KernelPtr make_pointwise_cpu(const KernelSpec& spec);
KernelPtr make_reduce_cpu(const KernelSpec& spec);
KernelPtr make_arg_extreme_cpu(const KernelSpec& spec);
KernelPtr make_movement_cpu(const KernelSpec& spec);
KernelPtr make_gather_cpu(const KernelSpec& spec);
KernelPtr make_scatter_add_cpu(const KernelSpec& spec);
KernelPtr make_one_hot_cpu(const KernelSpec& spec);
KernelPtr make_embedding_cpu(const KernelSpec& spec);
KernelPtr make_embedding_grad_cpu(const KernelSpec& spec);
KernelPtr make_softmax_cpu(const KernelSpec& spec);
KernelPtr make_cross_entropy_cpu(const KernelSpec& spec);
KernelPtr make_cross_entropy_grad_cpu(const KernelSpec& spec);
KernelPtr make_dropout_cpu(const KernelSpec& spec);
KernelPtr make_sgd_update_cpu(const KernelSpec& spec);
KernelPtr make_adam_update_cpu(const KernelSpec& spec);
KernelPtr make_predict_cpu(const KernelSpec& spec);
KernelPtr make_max_pool2d_cpu(const KernelSpec& spec);
KernelPtr make_max_pool2d_grad_cpu(const KernelSpec& spec);
KernelPtr make_avg_pool2d_cpu(const KernelSpec& spec);
KernelPtr make_avg_pool2d_grad_cpu(const KernelSpec& spec);
KernelPtr make_batch_norm_cpu(const KernelSpec& spec);
KernelPtr make_batch_norm_statistics_cpu(const KernelSpec& spec);
KernelPtr make_batch_norm_sums_cpu(const KernelSpec& spec);
KernelPtr make_group_norm_cpu(const KernelSpec& spec);
KernelPtr make_group_norm_grad_cpu(const KernelSpec& spec);

/// Kernels of oneDNN, which promises the same bits for the same team only. It splits sums among the team
/// where there are fewer results than work for it: in most gradients of convolution weights, and in products
/// of few rows and columns whose sums are thousands of terms long.
KernelPtr make_matmul_cpu(const KernelSpec& spec);
KernelPtr make_conv2d_cpu(const KernelSpec& spec);
KernelPtr make_conv2d_grad_input_cpu(const KernelSpec& spec);
KernelPtr make_conv2d_grad_weight_cpu(const KernelSpec& spec);

}  // namespace tandem::engine
