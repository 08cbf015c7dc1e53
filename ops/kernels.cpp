// The two kernel tables, whole: every kernel is named here (static initialisers vanish from static archives).
#include <tandem/core/graph_ops.h>
#include <tandem/core/kernel.h>
#include <tandem/ops/mapped.h>

namespace tandem {
namespace {

KernelTable make_reference_table() {
  KernelTable table("reference");
  add_graph_op_kernels(table);
  table.add("mapped", make_mapped_reference);
  return table;
}

KernelTable make_cpu_table() {
  KernelTable table("cpu", &reference_kernels());
  table.add("mapped", make_mapped_cpu);
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

}  // namespace tandem
