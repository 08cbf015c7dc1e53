#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include <tandem/core/graph/graph.h>
#include <tandem/core/graph/tensor.h>

namespace tandem {

namespace engine {
struct History;
}

/// What a Tensor refers to: memory, a value of a Trace, or a state by path.
struct Tensor::Impl {
  TensorType type;
  std::shared_ptr<std::byte> buffer;  // eager: 64-byte aligned elements
  std::uint64_t trace = 0;            // traced: the number of the Trace whose value this is, from 1
  engine::ValueId value = -1;
  std::string state;          // a state's path; empty otherwise
  std::uint64_t version = 0;  // counts eager assigns
  bool trained = false;
  bool requires_grad = false;
  std::shared_ptr<engine::History> history;  // how an eager Tensor came to be (ops/eager.h)
  std::size_t output = 0;                    // which of the history's outputs this is
  Tensor grad;
};

}  // namespace tandem
