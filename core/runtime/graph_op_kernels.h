#pragma once

namespace tandem::engine {

class KernelTable;

/// Adds the kernels of `input`, `result`, `constant` and `assign`, which every CPU backend shares.
void add_graph_op_kernels(KernelTable& table);

}  // namespace tandem::engine
