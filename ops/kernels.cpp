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

namespace tandem::engine {
namespace {

KernelTable make_reference_table() {
  KernelTable table("reference");
  add_graph_op_kernels(table);
  add_collective_kernels(table);
  add_copy_kernels(table);
  table.add("mapped", make_mapped);
  table.add("epilogue", make_epilogue);
  table.add("pointwise", make_pointwise_reference);
  table.add("reduce", make_reduce_reference);
  table.add("first_extreme", make_first_extreme_reference);
  table.add("arg_extreme", make_arg_extreme_reference);
  for (const char* movement : {"reshape", "transpose", "flip", "concat", "slice", "pad", "broadcast_to"})
    table.add(movement, make_movement_reference);
  table.add("gather", make_gather_reference);
  table.add("scatter_add", make_scatter_add_reference);
  table.add("embedding", make_embedding_reference);
  table.add("embedding_grad", make_embedding_grad_reference);
  table.add("one_hot", make_one_hot_reference);
  table.add("softmax", make_softmax_reference);
  table.add("cross_entropy", make_cross_entropy_reference);
  table.add("cross_entropy_grad", make_cross_entropy_grad_reference);
  table.add("dropout", make_dropout_reference);
  table.add("sgd_update", make_sgd_update_reference);
  table.add("adam_update", make_adam_update_reference);
  table.add("predict", make_predict_reference);
  table.add("matmul", make_matmul_reference);
  table.add("conv2d", make_conv2d_reference);
  table.add("conv2d_grad_input", make_conv2d_grad_input_reference);
  table.add("conv2d_grad_weight", make_conv2d_grad_weight_reference);
  table.add("max_pool2d", make_max_pool2d_reference);
  table.add("max_pool2d_grad", make_max_pool2d_grad_reference);
  table.add("max_pool2d_take", make_max_pool2d_take_reference);
  table.add("avg_pool2d", make_avg_pool2d_reference);
  table.add("avg_pool2d_grad", make_avg_pool2d_grad_reference);
  table.add("batch_norm", make_batch_norm_reference);
  table.add("batch_norm_statistics", make_batch_norm_statistics_reference);
  table.add("batch_norm_sums", make_batch_norm_sums_reference);
  table.add("group_norm", make_group_norm_reference);
  table.add("group_norm_grad", make_group_norm_grad_reference);
  return table;
}

KernelTable make_cpu_table() {
  KernelTable table("cpu", &reference_kernels());
  table.add("pointwise", make_pointwise_cpu);
  table.add("reduce", make_reduce_cpu);
  table.add("arg_extreme", make_arg_extreme_cpu);
  for (const char* movement : {"reshape", "transpose", "flip", "concat", "slice", "pad", "broadcast_to"})
    table.add(movement, make_movement_cpu);
  table.add("gather", make_gather_cpu);
  table.add("scatter_add", make_scatter_add_cpu);
  table.add("one_hot", make_one_hot_cpu);
  table.add("embedding", make_embedding_cpu);
  table.add("embedding_grad", make_embedding_grad_cpu);
  table.add("softmax", make_softmax_cpu);
  table.add("cross_entropy", make_cross_entropy_cpu);
  table.add("cross_entropy_grad", make_cross_entropy_grad_cpu);
  table.add("dropout", make_dropout_cpu);
  table.add("sgd_update", make_sgd_update_cpu);
  table.add("adam_update", make_adam_update_cpu);
  table.add("predict", make_predict_cpu);
  table.add("matmul", make_matmul_cpu);
  table.add("conv2d", make_conv2d_cpu);
  table.add("conv2d_grad_input", make_conv2d_grad_input_cpu);
  table.add("conv2d_grad_weight", make_conv2d_grad_weight_cpu);
  table.add("max_pool2d", make_max_pool2d_cpu);
  table.add("max_pool2d_grad", make_max_pool2d_grad_cpu);
  table.add("avg_pool2d", make_avg_pool2d_cpu);
  table.add("avg_pool2d_grad", make_avg_pool2d_grad_cpu);
  table.add("batch_norm", make_batch_norm_cpu);
  table.add("batch_norm_statistics", make_batch_norm_statistics_cpu);
  table.add("batch_norm_sums", make_batch_norm_sums_cpu);
  table.add("group_norm", make_group_norm_cpu);
  table.add("group_norm_grad", make_group_norm_grad_cpu);
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
