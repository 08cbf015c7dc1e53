#pragma once
#include <cstdint>

#include <tandem/core/base/rng.h>
#include <tandem/core/graph/kernel.h>
#include <tandem/ops/launch_operands.h>
#include <tandem/ops/random.h>

namespace tandem::engine {

/// Numbers the elements that an op draws: by sample of the whole batch, and within the sample.
struct SampleDraws {
  std::int64_t rows, row_elements;
  int microbatch, microbatches;
  std::uint64_t rng_id;

  /// For an op that draws a number for each element of a tensor of this type.
  SampleDraws(const KernelSpec& spec, const TensorType& type)
      : rows(type.shape[0]),
        row_elements(rows > 0 ? type.elements() / rows : 0),
        microbatch(spec.tag.microbatch),
        microbatches(spec.microbatches),
        rng_id(spec.tag.rng_id) {}

  /// `seed` is the number of the operand that has the seed.
  RngKey key(const Launch& l, int seed) const {
    return {static_cast<std::uint64_t>(*input<std::int64_t>(l, seed)), static_cast<std::uint64_t>(l.batch),
            rng_id};
  }
  /// Returns the number of a row in the whole batch, over replicas and micro-batches.
  std::uint64_t sample(const Launch& l, std::int64_t row) const {
    const std::int64_t before = std::int64_t{l.rank->replica} * microbatches + microbatch;
    return static_cast<std::uint64_t>(before * rows + row);
  }
};

/// Tells which elements a dropout keeps. All dropout kernels use it, so they keep the same elements.
struct DropoutMask : SampleDraws {
  float threshold;  ///< the probability of dropping
  int seed;         ///< the number of the operand

  /// For an op that drops elements of a tensor of this type.
  DropoutMask(const KernelSpec& spec, const TensorType& type, double p, int seed)
      : SampleDraws(spec, type), threshold(static_cast<float>(p)), seed(seed) {}
  explicit DropoutMask(const KernelSpec& spec)
      : DropoutMask(spec, spec.inputs[0], static_cast<const DropoutOp&>(spec.op).p, 1) {}

  RngKey key(const Launch& l) const { return SampleDraws::key(l, seed); }
  bool keeps(float draw) const { return draw >= threshold; }
};

}  // namespace tandem::engine
