#pragma once
#include <cstdint>

#include <tandem/datasets/dataset_adapter.h>

namespace tandem {

/// Mixes each sample with another of its batch: x = λ·x_i + (1-λ)·x_j, with both labels and weights λ and
/// 1-λ. Sample i of a batch of n is mixed with sample (i + shift) mod n. λ ~ Beta(alpha, alpha) and shift, 0
/// … n-1, are drawn per batch from seed, epoch and the batch's number in the epoch. Put it on top of a
/// shuffle: then it mixes a batch with a permutation of itself, as in the paper, however ranks share the
/// batches. It reads every sample twice. Source: Zhang et al., ICLR 2018 (alpha 0.1 … 1).
class MixupDataset final : public DatasetAdapter {
 public:
  /// `batch_size` is that of the global batch. Throws Error if the source's data is not f32 or f64 with one
  /// label, if batch_size is not positive, or if alpha is not in (0, 4].
  MixupDataset(DatasetPtr source, std::int64_t batch_size, double alpha, std::uint64_t seed);
  int labels_per_sample() const override { return 2; }
  void get(std::int64_t epoch, std::int64_t index, Sample& sample) const override;
  void get_labels(std::int64_t epoch, std::int64_t index, Sample& sample) const override;

  struct Pair {
    std::int64_t other;  ///< the index that `index` is mixed with
    double lambda;       ///< in 0 … 1
  };
  Pair pair(std::int64_t epoch, std::int64_t index) const;

 private:
  const std::int64_t batch_size_;
  const double alpha_;
  const std::uint64_t seed_;
  const TensorType type_;
};

}  // namespace tandem
