#include <tandem/memory/taken_bytes.h>

#include <algorithm>
#include <bit>

namespace tandem::engine {

void ByteSet::add(ByteRange range) {
  const auto first = std::ranges::lower_bound(ranges_, range.begin, {}, &ByteRange::end);
  const auto last = std::upper_bound(first, ranges_.end(), range.end,
                                     [](std::int64_t end, const ByteRange& r) { return end < r.begin; });
  if (first == last) {
    ranges_.insert(first, range);
    return;
  }
  *first = {std::min(range.begin, first->begin), std::max(range.end, (last - 1)->end)};
  ranges_.erase(first + 1, last);
}

TakenBytes::TakenBytes(std::int64_t cycle, const std::vector<CyclicInterval>& taken)
    : cycle_(cycle), cells_{0} {
  for (const CyclicInterval& t : taken) {
    cells_.push_back(t.begin);
    cells_.push_back((t.begin + t.length) % cycle);
  }
  std::ranges::sort(cells_);
  cells_.erase(std::unique(cells_.begin(), cells_.end()), cells_.end());
  nodes_.resize(2 * std::bit_ceil(cells_.size()));
}

template <class F> void TakenBytes::for_cells(CyclicInterval when, F f) const {
  const auto cell_of = [&](std::int64_t time) {
    return static_cast<std::size_t>(std::ranges::upper_bound(cells_, time) - cells_.begin()) - 1;
  };
  const std::int64_t end = when.begin + when.length;
  f(cell_of(when.begin), cell_of(std::min(end, cycle_) - 1) + 1);
  if (end > cycle_) f(0, cell_of(end - cycle_ - 1) + 1);
}

void TakenBytes::take(CyclicInterval when, ByteRange bytes) {
  for_cells(when,
            [&](std::size_t first, std::size_t last) { take(1, 0, nodes_.size() / 2, first, last, bytes); });
}

void TakenBytes::take(std::size_t node, std::size_t begin, std::size_t end, std::size_t first,
                      std::size_t last, ByteRange bytes) {
  if (end <= first || last <= begin) return;
  nodes_[node].sometimes.add(bytes);
  if (first <= begin && end <= last) return nodes_[node].throughout.add(bytes);
  const std::size_t middle = (begin + end) / 2;
  take(2 * node, begin, middle, first, last, bytes);
  take(2 * node + 1, middle, end, first, last, bytes);
}

void TakenBytes::find(CyclicInterval when, std::vector<ByteRange>& found) const {
  for_cells(when,
            [&](std::size_t first, std::size_t last) { find(1, 0, nodes_.size() / 2, first, last, found); });
}

void TakenBytes::find(std::size_t node, std::size_t begin, std::size_t end, std::size_t first,
                      std::size_t last, std::vector<ByteRange>& found) const {
  if (end <= first || last <= begin) return;
  const bool whole = first <= begin && end <= last;
  const auto& taken = (whole ? nodes_[node].sometimes : nodes_[node].throughout).ranges();
  found.insert(found.end(), taken.begin(), taken.end());
  if (whole) return;
  const std::size_t middle = (begin + end) / 2;
  find(2 * node, begin, middle, first, last, found);
  find(2 * node + 1, middle, end, first, last, found);
}

}  // namespace tandem::engine
