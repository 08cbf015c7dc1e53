#pragma once
#include <functional>
#include <map>
#include <string>

#include <tandem/core/graph/tensor.h>

namespace tandem::testing {

/// The computations of tests/golden/make_ops.py, by the same names: outputs from inputs.
using GoldenOps = std::map<std::string, std::function<Tensors(const Tensors&)>>;
GoldenOps golden_ops();

}  // namespace tandem::testing
