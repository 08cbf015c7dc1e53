#pragma once
#include <cstdint>

#include <tandem/datasets/transform.h>

namespace tandem {

/// Sets a square of `size` x `size` pixels to 0, in an image (H,W,C) of any dtype. The center is anywhere in
/// the image, so part of the square can lie outside. After Normalize, 0 is the mean color, as in the paper.
/// Source: DeVries and Taylor, arXiv:1708.04552 (size 16 for CIFAR-10, 8 for CIFAR-100).
class Cutout final : public Transform {
 public:
  /// Throws Error if the size is negative.
  explicit Cutout(std::uint64_t seed, std::int64_t size = 16);
  TensorType type(const TensorType& in) const override;
  void apply(std::int64_t epoch, std::int64_t index, const TensorType& in, Sample& sample) const override;

 private:
  const std::uint64_t seed_;
  const std::int64_t size_;
};

}  // namespace tandem
