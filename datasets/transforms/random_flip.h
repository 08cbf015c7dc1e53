#pragma once
#include <cstdint>

#include <tandem/datasets/transform.h>

namespace tandem {

/// Mirrors an image left to right with the given probability: u8 (H,W,C) -> u8 (H,W,C).
class RandomFlip final : public Transform {
 public:
  /// Throws Error if the probability is outside 0 … 1.
  explicit RandomFlip(std::uint64_t seed, double probability = 0.5);
  TensorType type(const TensorType& in) const override;
  void apply(std::int64_t epoch, std::int64_t index, const TensorType& in, Sample& sample) const override;

 private:
  const std::uint64_t seed_;
  const double probability_;
};

}  // namespace tandem
