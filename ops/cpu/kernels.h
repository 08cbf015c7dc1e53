#pragma once
#include <tandem/ops/launch_operands.h>

namespace tandem::engine {

/// Make fast kernels for f32 (norms and pooling: also bf16), run by a team of `spec.threads` threads. Each
/// returns null for types that it leaves to the reference kernels. The results of these kernels do not depend
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
KernelPtr make_embedding_bag_cpu(const KernelSpec& spec);
KernelPtr make_embedding_bag_grad_cpu(const KernelSpec& spec);
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
KernelPtr make_interpolate_cpu(const KernelSpec& spec);
KernelPtr make_batch_norm_cpu(const KernelSpec& spec);
KernelPtr make_batch_norm_statistics_cpu(const KernelSpec& spec);
KernelPtr make_batch_norm_sums_cpu(const KernelSpec& spec);
KernelPtr make_attention_cpu(const KernelSpec& spec);
KernelPtr make_attention_grad_cpu(const KernelSpec& spec);
KernelPtr make_sparse_sgd_update_cpu(const KernelSpec& spec);
KernelPtr make_lstm_cpu(const KernelSpec& spec);
KernelPtr make_lstm_grad_cpu(const KernelSpec& spec);
KernelPtr make_group_norm_cpu(const KernelSpec& spec);
KernelPtr make_group_norm_grad_cpu(const KernelSpec& spec);

/// Make kernels of oneDNN, which promises identical bits only for the same team size. It splits sums among
/// the team if there are too few results to share out: in most gradients of convolution weights, and in
/// products of few rows and columns whose sums have thousands of terms. Convolutions of tiny images are such
/// products, too (conv_dense.h, conv_unfolded.h).
KernelPtr make_matmul_cpu(const KernelSpec& spec);
KernelPtr make_conv2d_cpu(const KernelSpec& spec);
KernelPtr make_conv2d_grad_input_cpu(const KernelSpec& spec);
KernelPtr make_conv2d_grad_weight_cpu(const KernelSpec& spec);

}  // namespace tandem::engine
