#include <tandem/memory/fetch_places.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

namespace tandem::engine {

std::vector<int> fetch_places(const std::vector<Fetch>& fetches, const std::vector<double>& begins_ms,
                              std::vector<std::int64_t> live, std::int64_t limit) {
  std::vector<std::size_t> order(fetches.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::greater<>(), [&](std::size_t i) { return fetches[i].deadline; });
  std::vector<int> places(fetches.size());
  double end = std::numeric_limits<double>::infinity();  // of the copy before
  for (const std::size_t i : order) {
    const Fetch& fetch = fetches[i];
    const double start = std::min(begins_ms[static_cast<std::size_t>(fetch.deadline)], end) - fetch.copy_ms;
    const auto next = std::ranges::upper_bound(begins_ms, start);
    int place = std::clamp(static_cast<int>(next - begins_ms.begin()) - 1, fetch.earliest, fetch.deadline);
    for (int p = fetch.deadline - 1; p >= place; --p)
      if (live[static_cast<std::size_t>(p)] + fetch.bytes > limit) place = p + 1;
    for (int p = place; p < fetch.deadline; ++p) live[static_cast<std::size_t>(p)] += fetch.bytes;
    places[i] = place;
    end = std::min(end, start);
  }
  return places;
}

}  // namespace tandem::engine
