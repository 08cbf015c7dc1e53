#pragma once
#include <cstdint>
#include <memory>

#include <tandem/datasets/dataset.h>

namespace tandem {

/// A change of a sample's data. Its random numbers are a function of its seed, the epoch and the sample's
/// index in the dataset that it transforms, so workers, ranks and resumes do not change them.
class Transform {
 public:
  virtual ~Transform() = default;
  /// Returns the type of the result for data of type `in`. Throws Error if the transform does not take `in`.
  virtual TensorType type(const TensorType& in) const = 0;
  /// Turns `sample.data` of type `in` into data of `type(in)`. Several threads can call it at once.
  virtual void apply(std::int64_t epoch, std::int64_t index, const TensorType& in, Sample& sample) const = 0;
};
using TransformPtr = std::shared_ptr<const Transform>;

/// Throws Error naming the transform unless `in` is an image: u8 (H,W,C).
void require_image(const char* transform, const TensorType& in);

}  // namespace tandem
