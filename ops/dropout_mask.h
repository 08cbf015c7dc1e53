#pragma once
#include <cstdint>

#include <tandem/core/base/rng.h>
#include <tandem/core/graph/kernel.h>
#include <tandem/ops/random.h>

namespace tandem::engine {

/// Tells which elements a dropout keeps. All dropout kernels use it, so they keep the same elements.
struct DropoutMask {
  std::int64_t rows, row_elements;
  int microbatch, microbatches;
  std::uint64_t rng_id;
  float threshold;  ///< p

  explicit DropoutMask(const KernelSpec& spec)
      : rows(spec.inputs[0].shape[0]),
        row_elements(rows > 0 ? spec.inputs[0].elements() / rows : 0),
        microbatch(spec.tag.microbatch),
        microbatches(spec.microbatches),
        rng_id(spec.tag.rng_id),
        threshold(static_cast<float>(static_cast<const DropoutOp&>(spec.op).p)) {}

  RngKey key(const Launch& l) const {
    const auto seed = *static_cast<const std::int64_t*>(l.in[1]);
    return {static_cast<std::uint64_t>(seed), static_cast<std::uint64_t>(l.batch), rng_id};
  }
  /// Returns the number of a row in the whole batch, over replicas and micro-batches.
  std::uint64_t sample(const Launch& l, std::int64_t row) const {
    const std::int64_t before = std::int64_t{l.rank->replica} * microbatches + microbatch;
    return static_cast<std::uint64_t>(before * rows + row);
  }
  bool keeps(float draw) const { return draw >= threshold; }
};

}  // namespace tandem::engine
