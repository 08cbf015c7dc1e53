#include <tandem/core/runtime/local_rank.h>

#include <algorithm>
#include <exception>
#include <thread>

#include <tandem/core/base/error.h>
#include <tandem/core/runtime/comm.h>

namespace tandem::engine {

std::int64_t LocalRank::touched(Arena arena) const {
  const auto found = touched_by_dropped.find(arena);
  std::int64_t end = found == touched_by_dropped.end() ? 0 : found->second;
  for (const auto& [number, prepared] : programs) end = std::max(end, prepared->executable.touched(arena));
  return end;
}

void LocalRank::drop(int program) {
  for (const Arena arena : {Arena::work, Arena::state}) touched_by_dropped[arena] = touched(arena);
  programs.erase(program);
}

void on_each_rank(const LocalRanks& ranks, const std::function<void(LocalRank&)>& f) {
  std::vector<std::exception_ptr> errors(ranks.size());
  std::vector<std::jthread> threads;
  threads.reserve(ranks.size());
  const auto guarded = [&](std::size_t i) {
    try {
      f(*ranks[i]);
    } catch (...) {
      errors[i] = std::current_exception();
    }
  };
  try {
    for (std::size_t i = 1; i < ranks.size(); ++i) threads.emplace_back(guarded, i);
  } catch (...) {
    for (const auto& rank : ranks) rank->context.comm->abort("not every rank's thread could be started");
    threads.clear();
    throw;
  }
  guarded(0);
  for (auto& t : threads) t.join();
  // The cause is the error that is not merely the echo of another rank's.
  std::exception_ptr first;
  for (const auto& error : errors) {
    if (!error) continue;
    if (!first) first = error;
    try {
      std::rethrow_exception(error);
    } catch (const Aborted&) {
    }
  }
  if (first) std::rethrow_exception(first);
}

}  // namespace tandem::engine
