#include <tandem/datasets/skipping_dataset.h>

namespace tandem {

SkippingDataset::SkippingDataset(DatasetPtr source, std::shared_ptr<BadSamples> bad)
    : DatasetAdapter(std::move(source)), bad_(std::move(bad)) {}

void SkippingDataset::get(std::int64_t epoch, std::int64_t index, Sample& sample) const {
  require_index(*this, index);
  for (std::int64_t tried = 0; tried < size(); ++tried) {
    const std::int64_t i = (index + tried) % size();
    try {
      return source().get(epoch, i, sample);
    } catch (const BadSample& e) {
      bad_->met(i, e);
    }
  }
  throw BadSample("no sample of the dataset can be read: " + bad_->first());
}

}  // namespace tandem
