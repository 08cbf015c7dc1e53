#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <tandem/core/base/error.h>
#include <tandem/core/base/types.h>

namespace tandem {

/// One example. Memory that is filled again and again: who reads many uses one Sample for all of them.
struct Sample {
  std::vector<std::byte> data;       ///< a tensor of the dataset's `type`
  std::vector<std::int32_t> labels;  ///< `labels_per_sample` of them
  std::vector<float> weights;        ///< of the labels where there are several, of sum 1; else empty
  std::vector<std::byte> spare;      ///< scratch: what transforms write before they swap it with `data`
};

/// A sample that cannot be read: the message names file and offset. What SkippingDataset and MemoryDataset
/// may leave out.
class BadSample : public Error {
 public:
  using Error::Error;
};

/// Samples by number. All calls are const, and made from several threads at once. What `get` gives is a
/// function of epoch and index: data at rest ignore the epoch, shuffles and random transforms draw by it.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual std::int64_t size() const = 0;
  /// dtype and shape of every sample's data, without a batch axis: u8 (H,W,C) for images.
  virtual TensorType type() const = 0;
  /// Labels are 0 … classes-1; 0 where they are no classes.
  virtual int classes() const { return 0; }
  virtual int labels_per_sample() const { return 1; }
  /// Throws BadSample, and Error on an index outside 0 … size-1.
  virtual void get(std::int64_t epoch, std::int64_t index, Sample& sample) const = 0;
  /// The labels and weights that `get` gives; `data` is left as it happens to be. For those that have labels
  /// for less than the whole.
  virtual void get_labels(std::int64_t epoch, std::int64_t index, Sample& sample) const {
    get(epoch, index, sample);
  }
};
using DatasetPtr = std::shared_ptr<const Dataset>;

/// The dataset itself. Throws Error where there is none.
DatasetPtr required(DatasetPtr dataset);

/// Throws Error where index is not 0 … size-1.
void require_index(const Dataset& dataset, std::int64_t index);

}  // namespace tandem
