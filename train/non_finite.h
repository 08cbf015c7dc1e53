#pragma once
#include <cstdint>
#include <string>

#include <tandem/core/graph/graph.h>
#include <tandem/core/graph/tensor.h>
#include <tandem/core/runtime/host.h>
#include <tandem/ops/kernels.h>

namespace tandem {

/// Returns the first value of a graph (forward, or with its backward pass) that is NaN or infinite on a
/// batch, as text: "the state 'block1.weight'", or "matmul in module 'block1'". Empty if all are finite.
/// Computes the graph node by node, from the given state by path and the host's data, and frees each value
/// after its last reader.
std::string first_non_finite(const engine::Graph& forward, const StateDict& state, engine::Host& host,
                             std::int64_t batch, const engine::KernelTable& kernels = engine::cpu_kernels());

}  // namespace tandem
