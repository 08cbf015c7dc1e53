#pragma once
#include <cstdint>
#include <utility>

#include <tandem/datasets/dataset.h>

namespace tandem {

/// A view of another dataset. Functions that it does not override return the source's values.
class DatasetAdapter : public Dataset {
 public:
  std::int64_t size() const override { return source_->size(); }
  TensorType type() const override { return source_->type(); }
  int classes() const override { return source_->classes(); }
  int labels_per_sample() const override { return source_->labels_per_sample(); }
  void get(std::int64_t epoch, std::int64_t index, Sample& sample) const override {
    source_->get(epoch, source_index(epoch, index), sample);
  }
  void get_labels(std::int64_t epoch, std::int64_t index, Sample& sample) const override {
    source_->get_labels(epoch, source_index(epoch, index), sample);
  }

 protected:
  explicit DatasetAdapter(DatasetPtr source) : source_(required(std::move(source))) {}
  /// Returns the source's index of the sample that has number `index` here.
  virtual std::int64_t source_index(std::int64_t /*epoch*/, std::int64_t index) const { return index; }
  const Dataset& source() const { return *source_; }

 private:
  DatasetPtr source_;
};

}  // namespace tandem
