#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include <tandem/datasets/dataset.h>
#include <tandem/datasets/transform.h>

namespace tandem::apps {

/// What --augment takes.
std::vector<std::string> augmentations();

/// Throws Error where `names` is neither "none" nor some of the others joined by commas, each once, listing
/// all.
void check_augmentations(const std::string& names);

/// Images normalized, with the transforms that `names` asks for. What they draw is a function of seed, epoch
/// and image.
DatasetPtr augmented(DatasetPtr images, const std::string& names, std::uint64_t seed,
                     const TransformPtr& normalize);

}  // namespace tandem::apps
