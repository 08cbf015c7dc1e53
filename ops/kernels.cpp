// The two kernel tables. They list every kernel by name, because a linker drops static initializers of static
// archives.
#include <tandem/core/runtime/graph_op_kernels.h>
#include <tandem/ops/collective.h>
#include <tandem/ops/copy.h>
#include <tandem/ops/cpu/kernels.h>
#include <tandem/ops/epilogue.h>
#include <tandem/ops/kernels.h>
#include <tandem/ops/mapped.h>
#include <tandem/ops/reference/kernels.h>
#include <tandem/ops/timer.h>

namespace tandem::engine {
namespace {

struct Entry {
  std::string_view op;
  KernelFactory reference;
  KernelFactory cpu = nullptr;  // null: the CPU's table falls back on the reference kernel
};
constexpr Entry kKernels[] = {
    {"pointwise", make_pointwise_reference, make_pointwise_cpu},
    {"reduce", make_reduce_reference, make_reduce_cpu},
    {"first_extreme", make_first_extreme_reference},
    {"arg_extreme", make_arg_extreme_reference, make_arg_extreme_cpu},
    {"reshape", make_movement_reference, make_movement_cpu},
    {"transpose", make_movement_reference, make_movement_cpu},
    {"flip", make_movement_reference, make_movement_cpu},
    {"concat", make_movement_reference, make_movement_cpu},
    {"slice", make_movement_reference, make_movement_cpu},
    {"pad", make_movement_reference, make_movement_cpu},
    {"broadcast_to", make_movement_reference, make_movement_cpu},
    {"gather", make_gather_reference, make_gather_cpu},
    {"scatter_add", make_scatter_add_reference, make_scatter_add_cpu},
    {"embedding", make_embedding_reference, make_embedding_cpu},
    {"embedding_grad", make_embedding_grad_reference, make_embedding_grad_cpu},
    {"embedding_bag", make_embedding_bag_reference, make_embedding_bag_cpu},
    {"embedding_bag_grad", make_embedding_bag_grad_reference, make_embedding_bag_grad_cpu},
    {"one_hot", make_one_hot_reference, make_one_hot_cpu},
    {"index32", make_index32_reference},
    {"softmax", make_softmax_reference, make_softmax_cpu},
    {"cross_entropy", make_cross_entropy_reference, make_cross_entropy_cpu},
    {"cross_entropy_grad", make_cross_entropy_grad_reference, make_cross_entropy_grad_cpu},
    {"dropout", make_dropout_reference, make_dropout_cpu},
    {"noise", make_noise_reference},
    {"sgd_update", make_sgd_update_reference, make_sgd_update_cpu},
    {"sparse_sgd_update", make_sparse_sgd_update_reference, make_sparse_sgd_update_cpu},
    {"adam_update", make_adam_update_reference, make_adam_update_cpu},
    {"predict", make_predict_reference, make_predict_cpu},
    {"matmul", make_matmul_reference, make_matmul_cpu},
    {"conv2d", make_conv2d_reference, make_conv2d_cpu},
    {"conv2d_grad_input", make_conv2d_grad_input_reference, make_conv2d_grad_input_cpu},
    {"conv2d_grad_weight", make_conv2d_grad_weight_reference, make_conv2d_grad_weight_cpu},
    {"max_pool2d", make_max_pool2d_reference, make_max_pool2d_cpu},
    {"max_pool2d_grad", make_max_pool2d_grad_reference, make_max_pool2d_grad_cpu},
    {"max_pool2d_take", make_max_pool2d_take_reference},
    {"avg_pool2d", make_avg_pool2d_reference, make_avg_pool2d_cpu},
    {"avg_pool2d_grad", make_avg_pool2d_grad_reference, make_avg_pool2d_grad_cpu},
    {"interpolate", make_interpolate_reference, make_interpolate_cpu},
    {"batch_norm", make_batch_norm_reference, make_batch_norm_cpu},
    {"batch_norm_statistics", make_batch_norm_statistics_reference, make_batch_norm_statistics_cpu},
    {"batch_norm_sums", make_batch_norm_sums_reference, make_batch_norm_sums_cpu},
    {"group_norm", make_group_norm_reference, make_group_norm_cpu},
    {"attention", make_attention_reference, make_attention_cpu},
    {"attention_grad", make_attention_grad_reference, make_attention_grad_cpu},
    {"lstm", make_lstm_reference, make_lstm_cpu},
    {"lstm_grad", make_lstm_grad_reference, make_lstm_grad_cpu},
    {"group_norm_grad", make_group_norm_grad_reference, make_group_norm_grad_cpu},
};

KernelTable make_reference_table() {
  KernelTable table("reference");
  add_graph_op_kernels(table);
  add_collective_kernels(table);
  add_copy_kernels(table);
  add_timer_kernel(table);
  table.add("mapped", make_mapped);
  table.add("epilogue", make_epilogue);
  for (const Entry& entry : kKernels) table.add(entry.op, entry.reference);
  return table;
}

KernelTable make_cpu_table() {
  KernelTable table("cpu", &reference_kernels());
  for (const Entry& entry : kKernels)
    if (entry.cpu) table.add(entry.op, entry.cpu);
  return table;
}

}  // namespace

const KernelTable& reference_kernels() {
  static const KernelTable table = make_reference_table();
  return table;
}

const KernelTable& cpu_kernels() {
  static const KernelTable table = make_cpu_table();
  return table;
}

}  // namespace tandem::engine
