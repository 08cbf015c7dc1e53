#include <algorithm>
#include <cstring>

#include <tandem/ops/cpu/kernels.h>
#include <tandem/ops/cpu/parallel.h>
#include <tandem/ops/shape.h>

namespace tandem::engine {
namespace {

constexpr std::int64_t kBlock = 32;     // side of the squares that a transposition is cut into
constexpr std::int64_t kRow = 1 << 14;  // approximate number of elements in one unit of plain copies

// A region as outer loops around an inner box of `rows` × `columns`. A plain copy copies its rows. A
// transposition cuts it into squares: neighbors along `rows` are adjacent in the input, neighbors along
// `columns` in the output.
struct Box {
  Shape extents;  // of the outer loops
  Strides from, to;
  std::int64_t rows = 1, columns = 1;
  std::int64_t from_row = 0, from_column = 0, to_row = 0, to_column = 0;  // strides
  bool square;
  std::int64_t row_block, column_block;
  const CopyRegion region;

  explicit Box(const CopyRegion& r) : region(r) {
    const Loops loops = collapse({r.extents, {r.from, r.to}});
    extents = loops.extents;
    from = loops.strides[0];
    to = loops.strides[1];
    take(extents.size() - 1, columns, from_column, to_column);
    const auto near = std::find(from.begin(), from.end(), 1);
    square = from_column > 1 && near != from.end();
    if (square)
      take(static_cast<std::size_t>(near - from.begin()), rows, from_row, to_row);
    else if (!extents.empty())
      take(extents.size() - 1, rows, from_row, to_row);
    row_block = square ? kBlock : std::max<std::int64_t>(1, kRow / columns);
    column_block = square ? kBlock : kRow;
  }

  std::int64_t units() const {
    return element_count(extents) * blocks(rows, row_block) * blocks(columns, column_block);
  }
  static std::int64_t blocks(std::int64_t n, std::int64_t block) { return (n + block - 1) / block; }

 private:
  // Moves loop `axis` into the inner box.
  void take(std::size_t axis, std::int64_t& n, std::int64_t& from_stride, std::int64_t& to_stride) {
    const auto at = static_cast<std::ptrdiff_t>(axis);
    n = extents[axis];
    from_stride = from[axis];
    to_stride = to[axis];
    extents.erase(extents.begin() + at);
    from.erase(from.begin() + at);
    to.erase(to.begin() + at);
  }
};

template <class E> void copy_row(const Box& box, const E* from, E* to, std::int64_t columns) {
  if (box.to_column == 1 && box.from_column == 1) {
    if (from != to) std::memcpy(to, from, static_cast<std::size_t>(columns) * sizeof(E));
  } else if (box.to_column == 1 && box.from_column == 0) {
    std::fill_n(to, columns, *from);
  } else {
    for (std::int64_t c = 0; c < columns; ++c) to[c * box.to_column] = from[c * box.from_column];
  }
}

template <class E>
void copy_block(const Box& box, const E* from, E* to, std::int64_t rows, std::int64_t columns) {
  if (!box.square) {
    for (std::int64_t r = 0; r < rows; ++r)
      copy_row(box, from + r * box.from_row, to + r * box.to_row, columns);
    return;
  }
  // Copy through a square in the first-level cache: columns far apart in memory would evict each other.
  E square[kBlock][kBlock];
  for (std::int64_t c = 0; c < columns; ++c)
    for (std::int64_t r = 0; r < rows; ++r) square[r][c] = from[r * box.from_row + c * box.from_column];
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c) to[r * box.to_row + c * box.to_column] = square[r][c];
}

template <class E>
void copy_units(const Box& box, const E* from, E* to, std::int64_t begin, std::int64_t end) {
  const std::int64_t across = Box::blocks(box.columns, box.column_block),
                     down = Box::blocks(box.rows, box.row_block);
  for (std::int64_t unit = begin; unit < end; ++unit) {
    const std::int64_t column = unit % across * box.column_block, row = unit / across % down * box.row_block;
    const std::int64_t outer = unit / across / down;
    copy_block(box,
               from + position(box.extents, box.from, outer) + row * box.from_row + column * box.from_column,
               to + position(box.extents, box.to, outer) + row * box.to_row + column * box.to_column,
               std::min(box.row_block, box.rows - row), std::min(box.column_block, box.columns - column));
  }
}

template <class E> KernelPtr make(const KernelSpec& spec) {
  std::vector<Box> boxes;
  for (const CopyRegion& r : static_cast<const MovementOp&>(spec.op).regions(spec.inputs))
    if (element_count(r.extents) > 0) boxes.emplace_back(r);
  return make_kernel([boxes, threads = spec.threads](const Launch& l) {
    static constexpr E kZero{};
    for (const Box& box : boxes) {
      const E* from =
          (box.region.input < 0 ? &kZero : input<E>(l, box.region.input)) + box.region.from_offset;
      E* to = output<E>(l, 0) + box.region.to_offset;
      const int team = useful_threads(
          threads, element_count(box.region.extents) * static_cast<std::int64_t>(2 * sizeof(E)));
      parallel_parts(team, box.units(),
                     [&](std::int64_t begin, std::int64_t end) { copy_units(box, from, to, begin, end); });
    }
  });
}

}  // namespace

KernelPtr make_movement_cpu(const KernelSpec& spec) {
  return make_for_size(spec.outputs[0].dtype, [&](auto zero) { return make<decltype(zero)>(spec); });
}

}  // namespace tandem::engine
