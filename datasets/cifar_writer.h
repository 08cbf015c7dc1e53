#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>

namespace tandem {

/// Draws a data set (draw.h) and writes it to `dir` in CIFAR-10's binary layout: data_batch_1.bin …
/// data_batch_5.bin of equal size, test_batch.bin and batches.meta.txt (the class names, one per line); and
/// drawn.xxh3, the checksums of these files. Training images are numbers 0 … train_images-1 of the series
/// `seed`, test images start at kFirstDrawnTestIndex. Files get their names only once all are complete.
/// With `force`, a drawn set is replaced, and all other files stay. Throws Error if the directory is not empty,
/// unless `force` is set; if files with these names are there whose checksums drawn.xxh3 does not have; if a
/// count is not positive or `train_images` is not a multiple of 5; if the disk has no room for so many images;
/// and if something cannot be written. `written` is called after each image; if it throws, nothing is left.
void write_cifar10(const std::filesystem::path& dir, std::int64_t train_images = 50'000,
                   std::int64_t test_images = 10'000, std::uint64_t seed = 0, bool force = false,
                   const std::function<void()>& written = {});

}  // namespace tandem
