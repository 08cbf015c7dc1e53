#include <tandem/dist/group.h>

#include <fmt/format.h>

#include <tandem/core/base/error.h>

namespace tandem::engine {

std::string join_ranks(std::span<const int> ranks) { return fmt::format("{}", fmt::join(ranks, ", ")); }

std::size_t index_in_group(std::span<const int> group, int rank, int size) {
  std::size_t index = group.size();
  for (std::size_t i = 0; i < group.size(); ++i) {
    if (group[i] < 0 || group[i] >= size || (i > 0 && group[i] <= group[i - 1]))
      throw Error(fmt::format("rank {}: the group [{}] is not ascending ranks below {}", rank,
                              join_ranks(group), size));
    if (group[i] == rank) index = i;
  }
  if (index == group.size())
    throw Error(fmt::format("rank {} is not in the group [{}] it calls", rank, join_ranks(group)));
  return index;
}

void check_peer(const char* call, int rank, int peer, int size) {
  if (peer < 0 || peer >= size || peer == rank)
    throw Error(fmt::format("rank {}: {} with rank {}, which is not another of the {} ranks", rank, call,
                            peer, size));
}

}  // namespace tandem::engine
