// Indexing and text of Tensors.
#include <algorithm>
#include <ostream>
#include <variant>

#include <fmt/format.h>

#include <tandem/core/base/error.h>
#include <tandem/core/graph/tensor.h>
#include <tandem/core/graph/tensor_impl.h>
#include <tandem/ops/shape.h>

namespace tandem {
namespace {

// As NumPy: a place beyond the axis is its end.
AxisRange range_of(const Tensor& x, int axis, const Slice& s) {
  const std::int64_t n = x.size(axis);
  const auto place = [&](const std::optional<std::int64_t>& i, std::int64_t otherwise) {
    return i ? std::clamp<std::int64_t>(*i < 0 ? *i + n : *i, 0, n) : otherwise;
  };
  const AxisRange range{axis, place(s.begin, 0), place(s.end, n), s.step};
  if (s.step < 1)
    throw Error(fmt::format("a Slice with step {}: it must be 1 or more; flip() reverses", s.step));
  if (range.begin >= range.end)
    throw Error(fmt::format("a Slice from {} to {} is empty: axis {} of {}", s.begin.value_or(0),
                            s.end.value_or(n), axis, to_string(x.type())));
  return range;
}

AxisRange range_of(const Tensor& x, int axis, std::int64_t i) {
  const std::int64_t n = x.size(axis), begin = i < 0 ? i + n : i;
  if (begin < 0 || begin >= n)
    throw Error(fmt::format("index {} is out of range for axis {} of {}", i, axis, to_string(x.type())));
  return {axis, begin, begin + 1};
}

constexpr std::int64_t kWhole = 1000;  // a Tensor of so many elements is shown whole
constexpr std::int64_t kEdge = 3;      // otherwise: so many at both ends of each axis

void write(std::string& text, const Tensor& x, int axis, std::int64_t first, bool whole) {
  if (axis == x.type().rank()) {
    text += x.dtype() == DType::i64 ? std::to_string(x.as<std::int64_t>()[first])
                                    : fmt::format("{:.6g}", engine::load_element(x.dtype(), x.data(), first));
    return;
  }
  std::int64_t stride = 1;
  for (int a = axis + 1; a < x.type().rank(); ++a) stride *= x.size(a);
  const bool last = axis + 1 == x.type().rank();
  text += '[';
  for (std::int64_t i = 0; i < x.size(axis); ++i) {
    if (i > 0) text += last ? ", " : ",\n" + std::string(static_cast<std::size_t>(axis) + 1, ' ');
    if (!whole && i == kEdge && x.size(axis) > 2 * kEdge + 1) {
      text += "…";
      i = x.size(axis) - kEdge - 1;
    } else {
      write(text, x, axis + 1, first + i * stride, whole);
    }
  }
  text += ']';
}

}  // namespace

Tensor Tensor::operator[](std::int64_t i) const { return (*this)(i); }

Tensor Tensor::at(const std::vector<Index>& indices) const {
  if (std::ssize(indices) > type().rank())
    throw Error(fmt::format("an index of {} axes for {}", indices.size(), to_string(type())));
  std::vector<AxisRange> ranges;
  Shape shape;
  const Index whole = Slice();
  for (int axis = 0; axis < type().rank(); ++axis) {
    const auto i = static_cast<std::size_t>(axis);
    const Index& index = i < indices.size() ? indices[i] : whole;
    ranges.push_back(std::visit([&](const auto& at) { return range_of(*this, axis, at); }, index));
    if (std::holds_alternative<Slice>(index)) shape.push_back(ranges.back().count());
  }
  return reshape(slice(*this, ranges), shape);
}

std::string to_string(const Tensor& x) {
  if (!x) return "an undefined Tensor";
  const std::string type = to_string(x.type());
  if (x.impl()->trace != 0) return type + " in a trace";
  std::string text;
  write(text, x, 0, 0, x.elements() <= kWhole);
  return type + (x.type().rank() > 1 ? "\n" : " ") + text;
}

std::ostream& operator<<(std::ostream& out, const Tensor& x) { return out << to_string(x); }

}  // namespace tandem
