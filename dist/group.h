#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace tandem::engine {

/// Returns text such as "0, 2, 3".
std::string join_ranks(std::span<const int> ranks);

/// Returns the index of `rank` in `group`. Throws Error unless the group is ascending, within [0, size), and
/// holds `rank`.
std::size_t index_in_group(std::span<const int> group, int rank, int size);

/// Returns the first element of the slice of member `index`, if `members` share out `count` elements.
inline std::int64_t slice_begin(std::size_t index, std::size_t members, std::int64_t count) {
  return static_cast<std::int64_t>(index) * count / static_cast<std::int64_t>(members);
}

/// Throws Error unless `peer` is another rank of [0, size). `call` is "send" or "receive".
void check_peer(const char* call, int rank, int peer, int size);

}  // namespace tandem::engine
