#include <tandem/core/base/types.h>

#include <array>
#include <ostream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tandem/core/base/error.h>
#include <tandem/core/base/named.h>

namespace tandem {
namespace {
struct DTypeInfo {
  DType dtype;
  std::string_view name;
  std::int64_t size;
};
constexpr std::array<DTypeInfo, 8> kDTypes{{{DType::f32, "f32", 4},
                                            {DType::bf16, "bf16", 2},
                                            {DType::f16, "f16", 2},
                                            {DType::f64, "f64", 8},
                                            {DType::i32, "i32", 4},
                                            {DType::i64, "i64", 8},
                                            {DType::u8, "u8", 1},
                                            {DType::b8, "bool", 1}}};
const DTypeInfo& info(DType d) { return kDTypes[static_cast<std::size_t>(d)]; }
}  // namespace

std::int64_t size_of(DType d) { return info(d).size; }
std::string_view name_of(DType d) { return info(d).name; }
std::ostream& operator<<(std::ostream& out, DType d) { return out << name_of(d); }

DType dtype_from_name(std::string_view name) { return engine::row_named(name, kDTypes, "dtype").dtype; }

bool is_floating(DType d) {
  return d == DType::f32 || d == DType::f64 || d == DType::bf16 || d == DType::f16;
}

std::int64_t element_count(const Shape& shape) {
  constexpr std::int64_t kMost = std::int64_t{1} << 56;  // so that bytes, and sums of them, fit as well
  std::int64_t n = 1;
  for (auto extent : shape)
    if (extent < 0 || __builtin_mul_overflow(n, extent, &n) || n > kMost)
      throw Error(fmt::format("{} is no shape: extents are 0 or more, and their product is at most 2^56",
                              to_string(shape)));
  return n;
}

Shape with_models(Shape shape, std::int64_t models) {
  shape.insert(shape.begin(), models);
  return shape;
}
TensorType with_models(TensorType type, std::int64_t models) {
  return {type.dtype, with_models(std::move(type.shape), models)};
}

std::string to_string(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

std::string to_string(const TensorType& type) {
  return fmt::format("{}{}", name_of(type.dtype), to_string(type.shape));
}
std::ostream& operator<<(std::ostream& out, const TensorType& type) { return out << to_string(type); }

std::string to_string(TypesView types) {
  std::string text;
  for (const TensorType& t : types) text += (text.empty() ? "" : ", ") + to_string(t);
  return text;
}

}  // namespace tandem
