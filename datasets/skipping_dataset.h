#pragma once
#include <cstdint>
#include <memory>

#include <tandem/datasets/bad_samples.h>
#include <tandem/datasets/dataset_adapter.h>

namespace tandem {

/// Replaces each sample that cannot be read by the source's next one that can, for as many as `bad` allows.
/// All others keep their index, so the sample at an index does not depend on threads or the order of reads.
/// Put it right above the reader, below shuffles and transforms. Reading labels also reads the whole sample.
class SkippingDataset final : public DatasetAdapter {
 public:
  SkippingDataset(DatasetPtr source, std::shared_ptr<BadSamples> bad);
  void get(std::int64_t epoch, std::int64_t index, Sample& sample) const override;
  void get_labels(std::int64_t epoch, std::int64_t index, Sample& sample) const override {
    get(epoch, index, sample);
  }

 private:
  std::shared_ptr<BadSamples> bad_;
};

}  // namespace tandem
