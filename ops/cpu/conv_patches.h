#pragma once
#include <cstdint>
#include <cstring>
#include <vector>

#include <tandem/ops/conv.h>
#include <tandem/ops/cpu/onednn.h>

namespace tandem::engine {

/// The patch of an output pixel is a row of taps × channels: the pixels of the image that its window reads;
/// padding is 0. The patches of all output pixels of all samples lie one below the other.
template <class E> class Patches {
 public:
  explicit Patches(const Conv2dSize& s)
      : outputs(s.output.h * s.output.w),
        taps(s.window.kernel.h * s.window.kernel.w),
        in(s.in),
        pixels(s.image.h * s.image.w) {
    for (std::int64_t o = 0; o < outputs; ++o)
      for (std::int64_t t = 0; t < taps; ++t) pixel_.push_back(s.pixel_under(o, t));
  }

  const std::int64_t outputs, taps, in;  ///< output pixels of a sample, taps of the window, channels
  const std::int64_t pixels;             ///< of an image
  /// Returns the pixel that a tap reads, or a negative number in the padding.
  std::int64_t pixel(std::int64_t output, std::int64_t tap) const {
    return pixel_[static_cast<std::size_t>(output * taps + tap)];
  }
  /// Copies taps `first_tap` … first_tap + count − 1 of the patches `first` … first + rows − 1.
  void copy(const E* x, std::int64_t first, std::int64_t rows, std::int64_t first_tap, std::int64_t count,
            E* to) const {
    const auto bytes = static_cast<std::size_t>(in) * sizeof(E);
    for (std::int64_t row = first; row < first + rows; ++row) {
      const E* const image = x + row / outputs * pixels * in;
      for (std::int64_t tap = first_tap; tap < first_tap + count; ++tap, to += in)
        if (const std::int64_t p = pixel(row % outputs, tap); p >= 0)
          std::memcpy(static_cast<void*>(to), image + p * in, bytes);
        else
          std::memset(static_cast<void*>(to), 0, bytes);
    }
  }

 private:
  std::vector<std::int64_t> pixel_;  // per output pixel and tap
};

/// A matrix that lies in memory row by row.
inline onednn::Operand row_major(DType dtype, std::int64_t rows, std::int64_t columns) {
  return {dtype, {rows, columns}, {columns, 1}};
}
/// A matrix that lies in memory as rows × columns, read as columns × rows.
inline onednn::Operand transposed(DType dtype, std::int64_t rows, std::int64_t columns) {
  return {dtype, {columns, rows}, {1, columns}};
}

}  // namespace tandem::engine
