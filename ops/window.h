#pragma once
#include <cstdint>
#include <string>

#include <tandem/core/base/types.h>

namespace tandem {

/// Height and width; one number stands for both.
struct Size2 {
  std::int64_t h = 1, w = 1;
  Size2(std::int64_t both) : h(both), w(both) {}
  Size2(std::int64_t h, std::int64_t w) : h(h), w(w) {}
  bool operator==(const Size2&) const = default;
};
/// "3x5"
std::string to_string(const Size2& size);

}  // namespace tandem

namespace tandem::engine {

/// Throws Error, which calls it `what`, unless it is of images (N,H,W,C), one at least.
void check_images(const char* what, const TensorType& type);
/// Of images.
Size2 pixels(const TensorType& images);

/// A kernel sliding over an image that is surrounded by `padding` on each side. Taps lie `dilation`
/// pixels apart.
struct Window {
  Size2 kernel = 1, stride = 1, padding = 0, dilation = 1;
  /// How often it fits, rounded down. Throws Error where that is not at all, or a number is out of range.
  Size2 positions(const Size2& image) const;
  /// The smallest image on which it fits so often; less than 1 where the padding alone is enough. Throws
  /// Error where a number is out of range.
  Size2 covered(const Size2& positions) const;
};

}  // namespace tandem::engine
