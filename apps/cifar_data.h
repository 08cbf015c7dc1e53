#pragma once
#include <cstdint>

#include <tandem/datasets/cifar.h>
#include <tandem/datasets/dataset.h>

#include "train_options.h"

namespace tandem::apps {

/// What a run trains on and is tested by.
struct CifarData {
  DatasetPtr train, test;  ///< as a Trainer takes them: shuffled, augmented, normalized
  int classes = 10;
  std::string train_digest, test_digest;  ///< of the images as they were read
};

/// Reads, or draws, the images of --data, and says how many were left out. Throws Error on what cannot
/// be read, and on a batch size that does not go with their number.
CifarData read_cifar(const TrainOptions& options);

}  // namespace tandem::apps
