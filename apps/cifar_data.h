#pragma once
#include <memory>
#include <string>
#include <vector>

#include <tandem/datasets/cifar.h>
#include <tandem/datasets/dataset.h>

#include "train_options.h"

namespace tandem::apps {

/// The training and test data of a run.
struct CifarData {
  DatasetPtr train, test;  ///< ready for a Trainer: normalized; `train` also shuffled and augmented
  std::vector<DatasetPtr> of_models;  ///< `train` in the order of each model, if orders differ
  int classes = 10;
  /// Returns what the first `models` models train on: one set for all, or one per model.
  std::vector<DatasetPtr> trained(int models) const;
  std::string train_digest, test_digest;  ///< of the images as they were read
};

/// The images of --data as they were read.
struct CifarImages {
  std::shared_ptr<MemoryDataset> train, test;
};
/// Reads or draws the images, which all runs have in common, and logs how many were left out. Throws Error if
/// they cannot be read, or if the batch size of a run does not fit their number.
CifarImages read_cifar(const std::vector<TrainOptions>& runs);
CifarData data_of(const TrainOptions& options, const CifarImages& images);

}  // namespace tandem::apps
