#pragma once
#include <cstdint>
#include <optional>

#include <tandem/ops/broadcast.h>

namespace tandem::engine {

/// Walks a broadcast input in the order of the output's elements. Finds the input's element for an output
/// element, and how many elements follow with one stride.
class BroadcastWalk {
 public:
  static constexpr std::size_t kMaxLoops = 8;

  /// Reads an array of `shape` as one of shape `out`.
  BroadcastWalk(const Shape& shape, const Shape& out)
      : loops_(collapse({out, {broadcast_strides(shape, out), dense_strides(out)}})) {}

  bool fits() const { return loops_.extents.size() <= kMaxLoops; }
  /// True if the input is walked like the output.
  bool contiguous() const { return loops_.extents.size() == 1 && strides()[0] == 1; }
  bool scalar() const { return loops_.extents.size() == 1 && strides()[0] == 0; }
  /// Within every `block` elements of the output, the walk repeats itself after `period` elements.
  struct Repetition {
    std::int64_t period, block;
  };
  /// Returns the longest blocks whose period is at most `most`, if a block has at least `most` elements or is
  /// the whole output.
  std::optional<Repetition> repetition(std::int64_t most) const {
    std::int64_t inner = 1;
    std::optional<Repetition> found;
    for (std::size_t i = strides().size(); i-- > 0 && inner <= most;) {
      const std::int64_t block = inner * loops_.extents[i];
      if (strides()[i] == 0 && (block >= most || i == 0)) found = {inner, block};
      inner = block;
    }
    return found;
  }

  /// Cuts the `n` elements from output element `begin` on into pieces and calls `piece(done, count, offset,
  /// stride)` for each: element `done` + i of the n, for i < `count`, is input element offset + i·stride.
  template <class F> void visit(std::int64_t begin, std::int64_t n, const F& piece) const {
    const std::size_t last = loops_.extents.size() - 1;
    std::int64_t index[kMaxLoops], offset = 0;
    for (std::size_t axis = last + 1; axis-- > 0;) {
      index[axis] = begin % loops_.extents[axis];
      begin /= loops_.extents[axis];
      offset += index[axis] * strides()[axis];
    }
    for (std::int64_t done = 0; done < n;) {
      const std::int64_t count = std::min(n - done, loops_.extents[last] - index[last]);
      piece(done, count, offset, strides()[last]);
      done += count;
      offset += count * strides()[last];
      index[last] += count;
      for (std::size_t axis = last; axis > 0 && index[axis] == loops_.extents[axis]; --axis) {
        index[axis] = 0;
        ++index[axis - 1];
        offset += strides()[axis - 1] - loops_.extents[axis] * strides()[axis];
      }
      if (index[0] == loops_.extents[0]) index[0] = offset = 0;  // a periodic input starts over
    }
  }

 private:
  const Strides& strides() const { return loops_.strides[0]; }
  Loops loops_;
};

}  // namespace tandem::engine
