#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <tandem/core/base/error.h>
#include <tandem/core/base/types.h>

namespace tandem {

/// One example. To read many, use one Sample for all of them: its memory is filled again.
struct Sample {
  std::vector<std::byte> data;       ///< a tensor of the dataset's `type`
  std::vector<std::int32_t> labels;  ///< `labels_per_sample` of them
  std::vector<float> weights;        ///< of the labels if there are several, with sum 1; else empty
  std::vector<std::byte> spare;      ///< scratch: what transforms write before they swap it with `data`
};

/// A sample that cannot be read; the message names file and offset. SkippingDataset and MemoryDataset can
/// leave it out.
class BadSample : public Error {
 public:
  using Error::Error;
};

/// Samples by number. All calls are const, and several threads make them at once. The result of `get` is a
/// function of epoch and index: stored data ignore the epoch; shuffles and random transforms draw by it.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual std::int64_t size() const = 0;
  /// dtype and shape of every sample's data, without a batch axis: u8 (H,W,C) for images.
  virtual TensorType type() const = 0;
  /// Labels are 0 … classes-1. Returns 0 if labels are not classes.
  virtual int classes() const { return 0; }
  virtual int labels_per_sample() const { return 1; }
  /// Reads a sample. Throws BadSample, and Error if the index is outside 0 … size-1.
  virtual void get(std::int64_t epoch, std::int64_t index, Sample& sample) const = 0;
  /// Reads the labels and weights that `get` gives; `data` is unspecified. Override it if labels alone cost
  /// less than the whole sample.
  virtual void get_labels(std::int64_t epoch, std::int64_t index, Sample& sample) const {
    get(epoch, index, sample);
  }
};
using DatasetPtr = std::shared_ptr<const Dataset>;

/// Returns `dataset`. Throws Error if it is null.
DatasetPtr required(DatasetPtr dataset);

/// Throws Error unless `index` is in 0 … size-1.
void require_index(const Dataset& dataset, std::int64_t index);

}  // namespace tandem
