#include <tandem/datasets/mapped_dataset.h>

namespace tandem {

MappedDataset::MappedDataset(DatasetPtr source, TransformPtr transform)
    : DatasetAdapter(std::move(source)),
      transform_(std::move(transform)),
      in_(this->source().type()),
      out_(transform_ ? transform_->type(in_) : throw Error("there is no transform: the pointer is null")) {}

void MappedDataset::get(std::int64_t epoch, std::int64_t index, Sample& sample) const {
  source().get(epoch, index, sample);
  transform_->apply(epoch, index, in_, sample);
}

DatasetPtr mapped(DatasetPtr source, std::initializer_list<TransformPtr> transforms) {
  for (const TransformPtr& t : transforms) source = std::make_shared<MappedDataset>(std::move(source), t);
  return source;
}

}  // namespace tandem
