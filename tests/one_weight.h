#pragma once
#include <tandem/core/tensor.h>

namespace tandem::test {

/// A state of two elements, and no module: w · x, and what else a test puts in a graph.
struct OneWeight {
  OneWeight() {
    w.impl()->slot = "w";
    w.impl()->trained = true;
  }
  Tensor w = Tensor::zeros({DType::f32, {2}});
};

}  // namespace tandem::test
