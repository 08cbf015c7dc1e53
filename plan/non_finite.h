#pragma once
#include <cstdint>
#include <map>
#include <string>

#include <tandem/core/graph.h>
#include <tandem/core/host.h>
#include <tandem/core/kernel.h>
#include <tandem/core/tensor.h>

namespace tandem {

/// The first value of a forward graph, or one with its backward pass, that is NaN or infinite on a batch, as
/// text: "the state 'block1.weight'", or "matmul in module 'block1'". Empty where all are finite. The graph
/// is computed node by node, from the given state by path and the host's data; a value is there until its
/// last reader has been computed.
std::string first_non_finite(const Graph& forward, const std::map<std::string, Tensor>& state, Host& host,
                             std::int64_t batch, const KernelTable& kernels = cpu_kernels());

/// Is every element of a floating tensor finite? True of any other.
bool all_finite(const Tensor& t);
/// The same of elements that lie at `data`.
bool all_finite(const TensorType& type, const void* data);

}  // namespace tandem
