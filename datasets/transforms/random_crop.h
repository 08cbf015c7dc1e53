#pragma once
#include <cstdint>

#include <tandem/datasets/transform.h>

namespace tandem {

/// Surrounds an image with `padding` pixels of value 0, and cuts an image of the original size out of a
/// random place: u8 (H,W,C) -> u8 (H,W,C). Source: He et al., CVPR 2016, section 4.2 (padding 4).
class RandomCrop final : public Transform {
 public:
  /// Throws Error if the padding is negative.
  explicit RandomCrop(std::uint64_t seed, std::int64_t padding = 4);
  TensorType type(const TensorType& in) const override;
  void apply(std::int64_t epoch, std::int64_t index, const TensorType& in, Sample& sample) const override;

 private:
  const std::uint64_t seed_;
  const std::int64_t padding_;
};

}  // namespace tandem
