#pragma once
#include <string>

#include <tandem/core/graph.h>

namespace tandem {

/// A traced model as a table: a line for each module that computes, in order, with the type of the largest
/// value it gives, its parameters, the floating-point operations of its forward (a multiply-add counting two)
/// and the bytes of what it makes; then the sums. Modules below others are named by their paths; operations
/// outside of any are "(model)".
std::string summary(const Graph& forward);

}  // namespace tandem
