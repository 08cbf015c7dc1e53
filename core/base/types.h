#pragma once
#include <cstdint>
#include <iosfwd>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

/// Element types. `b8` is a boolean stored as one byte (0 or 1).
enum class DType : std::uint8_t { f32, bf16, f16, f64, i32, i64, u8, b8 };

/// Size of one element in bytes.
std::int64_t size_of(DType d);
/// "f32", "bf16", ...
std::string_view name_of(DType d);
std::ostream& operator<<(std::ostream& out, DType d);
/// The inverse of `name_of`. Throws Error on an unknown name, listing those that exist.
DType dtype_from_name(std::string_view name);
bool is_floating(DType d);

/// Extents, outermost first. A scalar has an empty shape.
using Shape = std::vector<std::int64_t>;

/// Returns the product of the extents. Throws Error on a negative extent, or more than 2^56 elements.
std::int64_t element_count(const Shape& shape);
/// "[8, 3, 32, 32]"
std::string to_string(const Shape& shape);

/// dtype + shape of a dense, row-major array. Images are channels-last (N,H,W,C),
/// convolution weights (O,H,W,I).
struct TensorType {
  DType dtype = DType::f32;
  Shape shape;

  std::int64_t elements() const { return element_count(shape); }
  std::int64_t bytes() const { return elements() * size_of(dtype); }
  int rank() const { return static_cast<int>(shape.size()); }
  bool operator==(const TensorType&) const = default;
};
using Types = std::vector<TensorType>;
using TypesView = std::span<const TensorType>;

/// Return the shape or type with a leading axis of `models` models.
Shape with_models(Shape shape, std::int64_t models);
TensorType with_models(TensorType type, std::int64_t models);

/// "f32[8, 3, 32, 32]"
std::string to_string(const TensorType& type);
std::ostream& operator<<(std::ostream& out, const TensorType& type);
/// "f32[8, 4], f32[16, 4]"
std::string to_string(TypesView types);

}  // namespace tandem

/// The parts that the library is built from: graphs, Programs, backends (engine.h).
namespace tandem::engine {

using tandem::to_string;  // otherwise hidden by the engine's overloads

}  // namespace tandem::engine
