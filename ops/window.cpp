#include <tandem/ops/window.h>

#include <algorithm>

#include <fmt/format.h>

#include <tandem/core/base/error.h>

namespace tandem {
using namespace engine;
namespace {

void check_axis(const char* axis, const char* counts, std::int64_t extent, std::int64_t kernel,
                std::int64_t stride, std::int64_t padding, std::int64_t dilation) {
  constexpr std::int64_t kMost = std::int64_t{1} << 31;  // so that no product of two overflows
  if (std::min({extent, kernel, stride, dilation}) < 1 || padding < 0 ||
      std::max({extent, kernel, stride, dilation, padding}) > kMost)
    throw Error(fmt::format(
        "{}: {} {}, kernel {}, stride {}, dilation {} must be at least 1 and padding {} at least 0, and "
        "none above {}",
        axis, counts, extent, kernel, stride, dilation, padding, kMost));
}

std::int64_t positions_along(const char* axis, std::int64_t extent, std::int64_t kernel, std::int64_t stride,
                             std::int64_t padding, std::int64_t dilation) {
  check_axis(axis, "extent", extent, kernel, stride, padding, dilation);
  const std::int64_t reach = dilation * (kernel - 1) + 1, room = extent + 2 * padding - reach;
  if (room < 0)
    throw Error(fmt::format("{}: a kernel that spans {} pixels does not fit into {} with padding {}", axis,
                            reach, extent, padding));
  return room / stride + 1;
}

std::int64_t covered_along(const char* axis, std::int64_t positions, std::int64_t kernel, std::int64_t stride,
                           std::int64_t padding, std::int64_t dilation) {
  check_axis(axis, "positions", positions, kernel, stride, padding, dilation);
  return (positions - 1) * stride + dilation * (kernel - 1) + 1 - 2 * padding;
}

}  // namespace

std::string to_string(const Size2& size) { return fmt::format("{}x{}", size.h, size.w); }

void engine::check_images(const char* what, const TensorType& type) {
  if (type.rank() != 4) throw Error(fmt::format("{} {} is not an image (N,H,W,C)", what, to_string(type)));
  if (type.elements() == 0) throw Error(fmt::format("{} {} is empty", what, to_string(type)));
}

Size2 engine::pixels(const TensorType& images) { return {images.shape[1], images.shape[2]}; }

Size2 Window::positions(const Size2& image) const {
  return {positions_along("height", image.h, kernel.h, stride.h, padding.h, dilation.h),
          positions_along("width", image.w, kernel.w, stride.w, padding.w, dilation.w)};
}

Size2 Window::covered(const Size2& positions) const {
  return {covered_along("height", positions.h, kernel.h, stride.h, padding.h, dilation.h),
          covered_along("width", positions.w, kernel.w, stride.w, padding.w, dilation.w)};
}

}  // namespace tandem
