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
/// Returns text such as "3x5".
std::string to_string(const Size2& size);

}  // namespace tandem

namespace tandem::engine {

/// Throws Error unless `type` is (N,H,W,C) and has elements. The message names the operand as `what`.
void check_images(const char* what, const TensorType& type);
/// Returns the height and width of images (N,H,W,C).
Size2 pixels(const TensorType& images);

/// A kernel that slides over an image with `padding` on each side. Its taps lie `dilation` pixels apart.
struct Window {
  Size2 kernel = 1, stride = 1, padding = 0, dilation = 1;
  /// Returns the number of positions of the kernel on `image`, rounded down. Throws Error if there is none,
  /// or if a number is out of range.
  Size2 positions(const Size2& image) const;
  /// Returns the smallest image with that many positions; an extent is below 1 if the padding alone is
  /// enough. Throws Error if a number is out of range.
  Size2 covered(const Size2& positions) const;
};

}  // namespace tandem::engine
