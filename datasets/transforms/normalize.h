#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include <tandem/datasets/transform.h>

namespace tandem {

/// out[h,w,c] = (in[h,w,c] / 255 - mean[c]) / deviation[c], computed in double and rounded once:
/// u8 (H,W,C) -> f32 or f64 (H,W,C).
class Normalize final : public Transform {
 public:
  /// Takes one mean and one standard deviation per channel. Throws Error if their numbers differ, if a
  /// deviation is not above 0, or if `dtype` is not f32 or f64.
  Normalize(std::span<const double> mean, std::span<const double> deviation, DType dtype = DType::f32);
  TensorType type(const TensorType& in) const override;
  void apply(std::int64_t epoch, std::int64_t index, const TensorType& in, Sample& sample) const override;

 private:
  template <class T> void look_up(const std::vector<T>& table, Sample& sample) const;
  const std::size_t channels_;
  const DType dtype_;
  // The result for each value of a channel, (256, channels); only the vector of `dtype_` is filled.
  std::vector<float> f32_;
  std::vector<double> f64_;
};

}  // namespace tandem
