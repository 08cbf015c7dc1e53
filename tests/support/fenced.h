#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

#include <tandem/core/graph/op.h>
#include <tandem/core/graph/tensor.h>

namespace tandem::testing {
using namespace engine;

/// Memory with guard bytes on both sides.
class Fenced {
 public:
  Fenced(std::int64_t bytes, unsigned char fill);
  std::byte* data() const { return data_; }
  std::int64_t bytes() const { return bytes_; }
  bool intact() const;

 private:
  std::int64_t bytes_;
  std::shared_ptr<std::byte> memory_;
  std::byte* data_;
};

/// The op's outputs by the CPU kernel for a team of `threads`. Guards surround its memory; scratch and outputs
/// hold NaN before. A write outside fails the test.
Tensors compute_fenced(const OpPtr& op, const Tensors& inputs, int threads = 2);

}  // namespace tandem::testing
