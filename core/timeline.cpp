#include <tandem/core/timeline.h>

#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <tandem/core/placement.h>

namespace tandem {

double Timeline::seconds() const {
  if (spans.empty()) return 0;
  double begin = spans[0].begin, end = spans[0].end;
  for (const Span& s : spans) {
    begin = std::min(begin, s.begin);
    end = std::max(end, s.end);
  }
  return end - begin;
}

double Timeline::busy(LaneId lane) const {
  double sum = 0;
  for (const Span& s : spans)
    if (s.lane == lane) sum += s.end - s.begin;
  return sum;
}

Timeline empty_timeline(const Program& program) {
  Timeline t;
  for (const Lane& l : program.lanes) t.lane_names.push_back(name_of(l, program.devices));
  for (const Step& s : program.steps) {
    t.step_names.push_back(s.name);
    const LaneKind kind = program.lanes[static_cast<std::size_t>(s.lane)].kind;
    t.categories.emplace_back(kind == LaneKind::compute ? name_of(s.tag.phase) : name_of(kind));
  }
  if (!program.memory.empty()) {
    t.live = live_bytes(program, 0);
    t.planned_bytes = program.memory[0].work;
  }
  return t;
}

std::string to_perfetto(const Timeline& t) {
  using nlohmann::json;
  json events = json::array();
  std::set<std::pair<int, LaneId>> tracks;
  for (const Span& s : t.spans) tracks.emplace(s.rank, s.lane);
  for (const auto& [rank, lane] : tracks) {
    events.push_back({{"ph", "M"}, {"name", "process_name"}, {"pid", rank}, {"args", {{"name", fmt::format("rank {}", rank)}}}});
    events.push_back({{"ph", "M"}, {"name", "thread_name"}, {"pid", rank}, {"tid", lane},
                      {"args", {{"name", t.lane_names[static_cast<std::size_t>(lane)]}}}});
    events.push_back({{"ph", "M"}, {"name", "thread_sort_index"}, {"pid", rank}, {"tid", lane}, {"args", {{"sort_index", lane}}}});
  }
  constexpr double kMicroseconds = 1e6;
  for (const Span& s : t.spans) {
    const auto step = static_cast<std::size_t>(s.step);
    events.push_back({{"ph", "X"}, {"name", t.step_names[step]}, {"cat", t.categories[step]}, {"pid", s.rank}, {"tid", s.lane},
                      {"ts", s.begin * kMicroseconds}, {"dur", (s.end - s.begin) * kMicroseconds},
                      {"args", {{"batch", s.batch}, {"unit", s.unit}}}});
    if (step < t.live.size())
      events.push_back({{"ph", "C"}, {"name", "bytes"}, {"pid", s.rank}, {"ts", s.begin * kMicroseconds},
                        {"args", {{"live", t.live[step]}, {"planned", t.planned_bytes}}}});
  }
  return json{{"traceEvents", events}, {"displayTimeUnit", "ms"}}.dump();
}

}  // namespace tandem
