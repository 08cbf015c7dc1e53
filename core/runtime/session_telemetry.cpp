#include <tandem/core/runtime/session_telemetry.h>

#include <algorithm>

#include <fmt/format.h>

#include <tandem/core/runtime/gather.h>

namespace tandem::engine {

Timeline gathered_timeline(const LocalRanks& ranks, int number, const Program& program, double origin,
                           Comm* comm, int root) {
  Timeline all = empty_timeline(program);
  for (const auto& rank : ranks) {
    const auto found = rank->programs.find(number);
    if (found == rank->programs.end()) continue;
    const Timeline own = found->second->backend.timeline();
    all.dropped += own.dropped;
    for (Span s : own.spans) {
      s.instruction = found->second->executable.program().instruction(s.instruction).origin;
      all.spans.push_back(s);
    }
  }
  if (!comm) return all;
  struct Counts {
    double origin;
    std::int64_t dropped;
  };
  const Counts mine{origin, all.dropped};
  const auto counts = gather(*comm, std::span(&mine, 1), root, kSessionChannel);
  auto spans = gather(*comm, std::span<const Span>(all.spans), root, kSessionChannel);
  for (int r = 0; r < static_cast<int>(spans.size()); ++r) {
    if (r == root) continue;
    const Counts& theirs = counts[r][0];
    all.dropped += theirs.dropped;
    for (Span s : spans[r]) {
      for (double* time : {&s.begin, &s.end, &s.met}) *time += theirs.origin - origin;
      all.spans.push_back(s);
    }
  }
  return all;
}

std::int64_t planned_peak(const std::vector<const Program*>& programs, int device) {
  DeviceMemory most;
  for (const Program* p : programs) {
    const DeviceMemory& m = p->memory.at(static_cast<std::size_t>(device));
    most.work = std::max(most.work, m.work);
    most.state = std::max(most.state, m.state);
  }
  return most.work + most.state;
}

std::int64_t planned_peak(const std::vector<const Program*>& programs) {
  std::int64_t peak = 0;
  for (int device = 0; device < programs.at(0)->devices; ++device)
    peak = std::max(peak, planned_peak(programs, device));
  return peak;
}

std::int64_t executed_peak(const LocalRanks& ranks, Comm* comm, int root) {
  std::int64_t peak = 0;
  for (const auto& rank : ranks)
    peak = std::max(peak, rank->touched(Arena::work) + rank->touched(Arena::state));
  if (!comm) return peak;
  for (const auto& theirs : gather(*comm, std::span<const std::int64_t>(&peak, 1), root, kSessionChannel))
    peak = std::max(peak, theirs[0]);
  return peak;
}

std::string doing(const LocalRanks& ranks, std::optional<int> rank) {
  std::string lines;
  for (const auto& local : ranks) {
    if (rank && local->context.rank != *rank) continue;
    for (const auto& [number, prepared] : local->programs)
      for (const std::string& text : prepared->backend.doing())
        lines += fmt::format("{}rank {}: {}", lines.empty() ? "" : "\n", local->context.rank, text);
  }
  return lines;
}

}  // namespace tandem::engine
