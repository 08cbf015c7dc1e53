#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include <tandem/datasets/dataset.h>
#include <tandem/datasets/transform.h>

namespace tandem::apps {

/// Returns the names that --augment takes.
std::vector<std::string> augmentations();

/// Throws Error listing all names unless `names` is "none" or some of the others joined by commas, each once.
void check_augmentations(const std::string& names);

/// Returns the images normalized and with the transforms in `names`. Their random numbers are a function of
/// seed, epoch and image.
DatasetPtr augmented(DatasetPtr images, const std::string& names, std::uint64_t seed,
                     const TransformPtr& normalize);

}  // namespace tandem::apps
