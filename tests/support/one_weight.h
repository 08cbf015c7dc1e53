#pragma once
#include <tandem/core/graph/tensor.h>

namespace tandem::testing {

/// A state of two elements without a module: a test puts w · x, or more, in a graph.
struct OneWeight {
  OneWeight() {
    w.impl()->state = "w";
    w.impl()->requires_grad = true;
  }
  Tensor w = Tensor::zeros({DType::f32, {2}});
};

}  // namespace tandem::testing
