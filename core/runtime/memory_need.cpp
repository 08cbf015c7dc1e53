#include <tandem/core/runtime/memory_need.h>

#include <algorithm>
#include <map>

#include <tandem/core/runtime/gather.h>

namespace tandem::engine {
namespace {

// A process's need as it is sent: its bytes and ranks, then its pools.
std::vector<std::int64_t> words_of(const MemoryNeed& need) {
  std::vector<std::int64_t> words{need.bytes, need.ranks};
  for (const MemoryPool& pool : need.pools) {
    words.push_back(static_cast<std::int64_t>(pool.id));
    words.push_back(pool.free);
  }
  return words;
}

MemoryNeed need_of(const std::vector<std::int64_t>& words) {
  MemoryNeed need{words.at(0), static_cast<int>(words.at(1)), {}};
  for (std::size_t i = 2; i + 1 < words.size(); i += 2)
    need.pools.push_back({static_cast<std::uint64_t>(words[i]), words[i + 1]});
  return need;
}

// What rank 0 answers to each other rank.
struct Answer {
  bool fits = true, is_short = false;
  Shortage here;
};

}  // namespace

std::vector<std::optional<Shortage>> shortages(std::span<const MemoryNeed> needs) {
  std::map<std::uint64_t, Shortage> by_pool;
  for (const MemoryNeed& need : needs)
    for (const MemoryPool& pool : need.pools) {
      Shortage& all = by_pool.try_emplace(pool.id, Shortage{.free = pool.free}).first->second;
      all.needed += need.bytes;
      all.free = std::min(all.free, pool.free);
      all.ranks += need.ranks;
    }
  std::vector<std::optional<Shortage>> found(needs.size());
  for (std::size_t i = 0; i < needs.size(); ++i)
    for (const MemoryPool& pool : needs[i].pools) {
      const Shortage& all = by_pool.at(pool.id);
      if (all.needed <= all.free) continue;
      if (!found[i] || found[i]->needed - found[i]->free < all.needed - all.free) found[i] = all;
    }
  return found;
}

MemoryVerdict check_memory(const MemoryNeed& mine, Comm* comm) {
  if (!comm) {
    const auto here = shortages({&mine, 1})[0];
    return {!here, here};
  }
  const auto words = words_of(mine);
  std::vector<MemoryNeed> needs;
  for (const auto& theirs : gather(*comm, std::span<const std::int64_t>(words), 0, kSessionChannel))
    needs.push_back(need_of(theirs));
  Answer answer;
  if (comm->rank() != 0) {
    comm->receive(&answer, sizeof answer, 0, kSessionChannel);
    return {answer.fits, answer.is_short ? std::optional(answer.here) : std::nullopt};
  }
  const auto found = shortages(needs);
  const bool fits = std::ranges::none_of(found, [](const auto& f) { return f.has_value(); });
  for (int r = 1; r < comm->size(); ++r) {
    const auto& theirs = found[static_cast<std::size_t>(r)];
    answer = {fits, theirs.has_value(), theirs.value_or(Shortage{})};
    comm->send(&answer, sizeof answer, r, kSessionChannel);
  }
  return {fits, found[0]};
}

}  // namespace tandem::engine
