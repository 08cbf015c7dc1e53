#include <tandem/core/runtime/agree.h>

#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tandem/core/base/error.h>

namespace tandem::engine {

// Every rank tells rank 0 its number; rank 0 tells all who differs from it.
void agree(Comm& comm, std::uint64_t mine, const std::string& what, std::uint64_t channel) {
  std::vector<std::int32_t> differs(static_cast<std::size_t>(comm.size()), 0);
  const auto bytes = static_cast<std::int64_t>(differs.size() * sizeof(std::int32_t));
  if (comm.rank() == 0) {
    for (int r = 1; r < comm.size(); ++r) {
      std::uint64_t theirs = 0;
      comm.receive(&theirs, sizeof theirs, r, channel);
      differs[static_cast<std::size_t>(r)] = theirs != mine;
    }
    for (int r = 1; r < comm.size(); ++r) comm.send(differs.data(), bytes, r, channel);
  } else {
    comm.send(&mine, sizeof mine, 0, channel);
    comm.receive(differs.data(), bytes, 0, channel);
  }
  std::vector<int> ranks;
  for (int r = 0; r < comm.size(); ++r)
    if (differs[static_cast<std::size_t>(r)]) ranks.push_back(r);
  if (!ranks.empty())
    throw Error(fmt::format(
        "rank {}: the ranks disagree on {}: rank {} has another than rank 0; start all ranks with the same arguments, the "
        "same data and the same build",
        comm.rank(), what, fmt::join(ranks, ", ")));
}

}  // namespace tandem::engine
