#pragma once
#include <cstdint>
#include <memory>

#include <tandem/datasets/dataset.h>

namespace tandem {

/// What is done to a sample's data. What it draws is a function of its seed, the epoch and the sample's index
/// in the dataset that it transforms: neither worker, rank nor resume change it.
class Transform {
 public:
  virtual ~Transform() = default;
  /// The type of what it gives for data of type `in`. Throws Error on one that it does not take.
  virtual TensorType type(const TensorType& in) const = 0;
  /// `sample.data` of type `in` becomes one of `type(in)`. From several threads at once.
  virtual void apply(std::int64_t epoch, std::int64_t index, const TensorType& in, Sample& sample) const = 0;
};
using TransformPtr = std::shared_ptr<const Transform>;

/// Throws Error, naming the transform, where `in` is no image: u8 (H,W,C).
void require_image(const char* transform, const TensorType& in);

}  // namespace tandem
