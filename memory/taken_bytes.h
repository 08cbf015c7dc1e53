#pragma once
#include <cstdint>
#include <vector>

namespace tandem::engine {

struct ByteRange {
  std::int64_t begin, end;
};

/// A set of bytes, as ranges that are ascending and apart.
class ByteSet {
 public:
  void add(ByteRange range);
  const std::vector<ByteRange>& ranges() const { return ranges_; }

 private:
  std::vector<ByteRange> ranges_;
};

/// An interval of a cyclic time 0 … cycle − 1. It begins in there, and can reach over the end.
struct CyclicInterval {
  std::int64_t begin, length;
};

/// Which bytes are taken when. It is a segment tree over time: a call visits a number of nodes that is
/// logarithmic in the number of intervals.
class TakenBytes {
 public:
  /// `taken` are the intervals that `take` will be called with.
  TakenBytes(std::int64_t cycle, const std::vector<CyclicInterval>& taken);

  void take(CyclicInterval when, ByteRange bytes);
  /// Appends the bytes taken at some time of the interval, as ranges in no order that can overlap.
  void find(CyclicInterval when, std::vector<ByteRange>& found) const;

 private:
  // A stretch of time, the children halve it.
  struct Node {
    ByteSet throughout;  // taken all the time, but not all the time of the parent
    ByteSet sometimes;   // taken at some time
  };
  // Calls f(first, end) for the cells that the interval touches: one range, or two.
  template <class F> void for_cells(CyclicInterval when, F f) const;
  void take(std::size_t node, std::size_t begin, std::size_t end, std::size_t first, std::size_t last,
            ByteRange bytes);
  void find(std::size_t node, std::size_t begin, std::size_t end, std::size_t first, std::size_t last,
            std::vector<ByteRange>& found) const;

  std::int64_t cycle_;
  std::vector<std::int64_t> cells_;  // where they begin: no interval begins or ends within a cell
  std::vector<Node> nodes_;          // node 1 is the whole cycle; the children of node i are 2i and 2i + 1
};

}  // namespace tandem::engine
