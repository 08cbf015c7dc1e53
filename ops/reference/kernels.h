#pragma once
#include <tandem/ops/launch_operands.h>

namespace tandem::engine {

/// Make kernels that are plain loops on one thread. Tests compare with them; they also run if no faster
/// kernel exists.
KernelPtr make_pointwise_reference(const KernelSpec& spec);
KernelPtr make_reduce_reference(const KernelSpec& spec);
KernelPtr make_first_extreme_reference(const KernelSpec& spec);
KernelPtr make_arg_extreme_reference(const KernelSpec& spec);
/// Makes the kernel of every MovementOp: reshape, transpose, flip, concat, slice, pad, broadcast_to.
KernelPtr make_movement_reference(const KernelSpec& spec);
KernelPtr make_gather_reference(const KernelSpec& spec);
KernelPtr make_scatter_add_reference(const KernelSpec& spec);
KernelPtr make_embedding_reference(const KernelSpec& spec);
KernelPtr make_embedding_grad_reference(const KernelSpec& spec);
KernelPtr make_embedding_bag_reference(const KernelSpec& spec);
KernelPtr make_embedding_bag_grad_reference(const KernelSpec& spec);
KernelPtr make_one_hot_reference(const KernelSpec& spec);
KernelPtr make_index32_reference(const KernelSpec& spec);
KernelPtr make_softmax_reference(const KernelSpec& spec);
KernelPtr make_cross_entropy_reference(const KernelSpec& spec);
KernelPtr make_cross_entropy_grad_reference(const KernelSpec& spec);
KernelPtr make_dropout_reference(const KernelSpec& spec);
KernelPtr make_noise_reference(const KernelSpec& spec);
KernelPtr make_sgd_update_reference(const KernelSpec& spec);
KernelPtr make_adam_update_reference(const KernelSpec& spec);
KernelPtr make_predict_reference(const KernelSpec& spec);
KernelPtr make_matmul_reference(const KernelSpec& spec);
KernelPtr make_conv2d_reference(const KernelSpec& spec);
KernelPtr make_conv2d_grad_input_reference(const KernelSpec& spec);
KernelPtr make_conv2d_grad_weight_reference(const KernelSpec& spec);
KernelPtr make_max_pool2d_reference(const KernelSpec& spec);
KernelPtr make_max_pool2d_grad_reference(const KernelSpec& spec);
KernelPtr make_max_pool2d_take_reference(const KernelSpec& spec);
KernelPtr make_avg_pool2d_reference(const KernelSpec& spec);
KernelPtr make_avg_pool2d_grad_reference(const KernelSpec& spec);
KernelPtr make_interpolate_reference(const KernelSpec& spec);
KernelPtr make_batch_norm_reference(const KernelSpec& spec);
KernelPtr make_batch_norm_statistics_reference(const KernelSpec& spec);
KernelPtr make_batch_norm_sums_reference(const KernelSpec& spec);
KernelPtr make_attention_reference(const KernelSpec& spec);
KernelPtr make_attention_grad_reference(const KernelSpec& spec);
KernelPtr make_sparse_sgd_update_reference(const KernelSpec& spec);
KernelPtr make_lstm_reference(const KernelSpec& spec);
KernelPtr make_lstm_grad_reference(const KernelSpec& spec);
KernelPtr make_group_norm_reference(const KernelSpec& spec);
KernelPtr make_group_norm_grad_reference(const KernelSpec& spec);

}  // namespace tandem::engine
