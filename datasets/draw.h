#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include <tandem/datasets/cifar.h>

namespace tandem {

/// The ten classes of drawn images: six shapes and four textures.
inline constexpr int kDrawnClasses = 10;
std::array<std::string_view, kDrawnClasses> drawn_class_names();

/// The index of the first test image: no training set reaches it.
inline constexpr std::int64_t kFirstDrawnTestIndex = std::int64_t{1} << 40;

/// Draws image `index` of the series `seed` into `pixels` (32,32,3) and returns its class. A pure
/// function of (seed, index). The class decides only the form. Colors, place, size, rotation,
/// lighting, background and noise come from one distribution for all classes, and exchanging foreground
/// and background leaves it unchanged, so neither color nor any fixed pixel tells the class. Images
/// 10k … 10k+9 hold each class once, in a random order.
int draw_image(std::uint64_t seed, std::int64_t index, std::span<std::uint8_t, kCifarImageBytes> pixels);

}  // namespace tandem
