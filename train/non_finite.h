#pragma once
#include <cstdint>
#include <map>
#include <string>

#include <tandem/core/graph/graph.h>
#include <tandem/core/graph/kernel.h>
#include <tandem/core/graph/tensor.h>
#include <tandem/core/runtime/host.h>

namespace tandem {

/// The first value of a forward graph, or one with its backward pass, that is NaN or infinite on a batch, as
/// text: "the state 'block1.weight'", or "matmul in module 'block1'". Empty where all are finite. The graph
/// is computed node by node, from the given state by path and the host's data; a value is there until its
/// last reader has been computed.
std::string first_non_finite(const engine::Graph& forward, const StateDict& state, engine::Host& host,
                             std::int64_t batch, const engine::KernelTable& kernels = engine::cpu_kernels());

}  // namespace tandem
