#include <tandem/datasets/dataset.h>

#include <fmt/format.h>

namespace tandem {

DatasetPtr required(DatasetPtr dataset) {
  if (!dataset) throw Error("there is no dataset: the pointer is null");
  return dataset;
}

void require_index(const Dataset& dataset, std::int64_t index) {
  if (index < 0 || index >= dataset.size())
    throw Error(fmt::format("sample {} is out of range; the dataset has {}, from 0", index,
                            counted(dataset.size(), "sample")));
}

}  // namespace tandem
