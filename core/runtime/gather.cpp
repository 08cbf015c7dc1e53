#include <tandem/core/runtime/gather.h>

#include <algorithm>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tandem/core/base/error.h>

namespace tandem::engine {

std::vector<std::vector<std::byte>> gather_bytes(Comm& comm, std::span<const std::byte> mine, int root,
                                                 std::uint64_t channel) {
  if (comm.rank() != root) {
    const auto bytes = std::ssize(mine);
    comm.send(&bytes, sizeof bytes, root, channel);
    if (bytes > 0) comm.send(mine.data(), bytes, root, channel);
    return {};
  }
  std::vector<std::vector<std::byte>> all;
  for (int r = 0; r < comm.size(); ++r) {
    auto& theirs = all.emplace_back();
    if (r == root) {
      theirs.assign(mine.begin(), mine.end());
      continue;
    }
    std::int64_t bytes = 0;
    comm.receive(&bytes, sizeof bytes, r, channel);
    theirs.resize(static_cast<std::size_t>(bytes));
    if (bytes > 0) comm.receive(theirs.data(), bytes, r, channel);
  }
  return all;
}

int least(Comm& comm, int mine, std::uint64_t channel) {
  std::vector<std::int32_t> all(static_cast<std::size_t>(comm.size()), 0);
  std::vector<int> ranks(all.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  all[static_cast<std::size_t>(comm.rank())] = mine;
  comm.all_reduce_sum(all.data(), comm.size(), DType::i32, ranks, channel);
  return *std::ranges::min_element(all);
}

// Rank 0 compares, and sends each rank's verdict to all: the place of the first value that differs from its
// own.
void agree(Comm& comm, std::span<const Agreed> mine, std::uint64_t channel) {
  std::vector<std::uint64_t> values{mine.size()};  // which another build may have more of
  for (const Agreed& a : mine) values.push_back(a.value);
  const auto same = static_cast<std::int32_t>(values.size());
  std::vector<std::int32_t> differs(static_cast<std::size_t>(comm.size()), same);
  const auto bytes = static_cast<std::int64_t>(differs.size() * sizeof(std::int32_t));
  const auto all = gather(comm, std::span<const std::uint64_t>(values), 0, channel);
  for (std::size_t r = 0; r < all.size(); ++r)
    differs[r] = static_cast<std::int32_t>(std::ranges::mismatch(values, all[r]).in1 - values.begin());
  for (int r = 1; comm.rank() == 0 && r < comm.size(); ++r) comm.send(differs.data(), bytes, r, channel);
  if (comm.rank() != 0) comm.receive(differs.data(), bytes, 0, channel);
  const std::int32_t first = std::ranges::min(differs);
  if (first == same) return;
  std::vector<int> ranks;
  for (int r = 0; r < comm.size(); ++r)
    if (differs[static_cast<std::size_t>(r)] == first) ranks.push_back(r);
  throw Error(fmt::format(
      "rank {}: the ranks disagree on {}: rank {} has another value than rank 0; start all ranks with the same "
      "arguments, the same data and the same build",
      comm.rank(), first == 0 ? "the build" : mine[static_cast<std::size_t>(first - 1)].what,
      fmt::join(ranks, ", ")));
}

void agree(Comm& comm, std::uint64_t mine, const std::string& what, std::uint64_t channel) {
  agree(comm, std::vector<Agreed>{{what, mine}}, channel);
}

}  // namespace tandem::engine
