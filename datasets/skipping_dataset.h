#pragma once
#include <cstdint>
#include <memory>

#include <tandem/datasets/bad_samples.h>
#include <tandem/datasets/dataset_adapter.h>

namespace tandem {

/// In place of a sample that cannot be read, the next one of the source that can, up to as many as `bad`
/// allows. Nothing moves, so what stands at an index depends on no thread nor order. To be put right above
/// the reader, below shuffles and transforms. Reads a sample for its labels as well.
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
