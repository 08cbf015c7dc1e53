#include <tandem/core/runtime/timeline.h>

#include <algorithm>
#include <chrono>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace tandem::engine {

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double Timeline::seconds() const {
  if (spans.empty()) return 0;
  return std::ranges::max(spans, {}, &Span::end).end - std::ranges::min(spans, {}, &Span::begin).begin;
}

double Timeline::busy(LaneId lane) const {
  double sum = 0;
  for (const Span& s : spans)
    if (s.lane == lane) sum += s.end - s.begin;
  return sum;
}

namespace {

// Of the oldest trained weights that an instruction reads.
std::optional<Timeline::WeightRead> weight_read(const Program& program, const Instruction& s,
                                                const std::set<BlockId>& weights) {
  std::optional<Timeline::WeightRead> oldest;
  for (const MemberId m : s.reads)
    if (const Member& member = program.member(m);
        weights.contains(member.block) && (!oldest || member.shift < oldest->shift))
      oldest = {member.shift, s.lag};
  return oldest;
}

// After how many updates of the training: a run begins with those of all batches before it.
std::int64_t updates_before(const Span& span, const Timeline::WeightRead& read) {
  const std::int64_t in_run = span.unit - read.lag, first = span.batch - in_run;
  return first + std::max<std::int64_t>(0, in_run + read.shift);
}

}  // namespace

Timeline empty_timeline(const Program& program) {
  Timeline t;
  std::set<BlockId> weights;
  for (const StateBlock& state : program.states)
    if (state.trained) weights.insert(state.block);
  for (const Lane& l : program.lanes) t.lane_names.push_back(name_of(l, program.devices));
  for (const Instruction& s : program.instructions) {
    t.instruction_names.push_back(s.name);
    const LaneKind kind = program.lane(s.lane).kind;
    t.categories.emplace_back(kind == LaneKind::compute ? name_of(s.tag.phase) : name_of(kind));
    t.weight_reads.push_back(weight_read(program, s, weights));
  }
  if (program.memory.empty()) return t;  // not placed yet
  std::vector<std::vector<std::int64_t>> live;
  for (int device = 0; device < program.devices; ++device) live.push_back(live_bytes(program, device));
  for (const InstructionId s : program.instructions.ids()) {
    const auto device = static_cast<std::size_t>(program.lane_of(s).device);
    t.live.push_back(program.memory[device].state + live[device][s]);
    t.planned.push_back(planned_peak(program, program.lane_of(s).device));
  }
  return t;
}

std::string to_perfetto(const Timeline& t) {
  using nlohmann::json;
  json events = json::array();
  std::set<std::pair<int, LaneId>> tracks;
  for (const Span& s : t.spans) tracks.emplace(s.rank, s.lane);
  const auto describe = [&](const char* what, int rank, const json& args) -> json& {
    return events.emplace_back(json{{"ph", "M"}, {"name", what}, {"pid", rank}, {"args", args}});
  };
  for (const auto& [rank, lane] : tracks) {
    describe("process_name", rank, {{"name", fmt::format("rank {}", rank)}});
    describe("thread_name", rank, {{"name", t.lane_names[lane]}})["tid"] = lane;
    describe("thread_sort_index", rank, {{"sort_index", lane}})["tid"] = lane;
  }
  constexpr double kMicroseconds = 1e6;
  for (const Span& s : t.spans) {
    const InstructionId instruction = s.instruction;
    events.push_back({{"ph", "X"},
                      {"name", t.instruction_names[instruction]},
                      {"cat", t.categories[instruction]},
                      {"pid", s.rank},
                      {"tid", s.lane},
                      {"ts", s.begin * kMicroseconds},
                      {"dur", (s.end - s.begin) * kMicroseconds},
                      {"args", {{"batch", s.batch}, {"unit", s.unit}}}});
    if (const auto read = t.weight_reads[instruction])
      events.back()["args"]["weights"] = updates_before(s, *read);
    if (t.categories[instruction] == name_of(LaneKind::collective))
      events.back()["args"].update(
          {{"threads", s.threads}, {"waited_us", std::max(0.0, s.met - s.begin) * kMicroseconds}});
    if (t.live.contains(instruction))
      events.push_back({{"ph", "C"},
                        {"name", "bytes"},
                        {"pid", s.rank},
                        {"ts", s.begin * kMicroseconds},
                        {"args", {{"live", t.live[instruction]}, {"planned", t.planned[instruction]}}}});
  }
  return json{{"traceEvents", events}, {"displayTimeUnit", "ms"}}.dump();
}

namespace {

char symbol(const std::string& category, std::int64_t batch) {
  if (category == "forward") return static_cast<char>('0' + batch % 10);
  if (category == "backward") return static_cast<char>('a' + batch % 26);
  if (category == "update") return '*';
  if (category == "collective") return '=';
  if (category == "send") return '>';
  if (category == "receive") return '<';
  if (category == "timer") return '-';
  if (category == "recompute") return '+';
  if (category == "wait") return '_';
  return category == "copy-out" ? 'o' : 'i';
}

}  // namespace

std::string to_text(const Timeline& t, int columns) {
  const double begin = t.spans.empty() ? 0 : std::ranges::min(t.spans, {}, &Span::begin).begin;
  const double cell = t.seconds() > 0 ? t.seconds() / columns : 1;
  std::size_t width = 0;
  for (const auto& name : t.lane_names) width = std::max(width, name.size());
  std::string text;
  for (const LaneId lane : t.lane_names.ids()) {
    std::string row(static_cast<std::size_t>(columns), '.');
    std::vector<double> longest(static_cast<std::size_t>(columns), 0);
    for (const Span& s : t.spans) {
      if (s.lane != lane) continue;
      const auto first = static_cast<int>((s.begin - begin) / cell),
                 last = static_cast<int>((s.end - begin) / cell);
      for (int c = first; c <= std::min(last, columns - 1); ++c) {
        const double covered = std::min(s.end - begin, (c + 1) * cell) - std::max(s.begin - begin, c * cell);
        if (covered <= longest[c]) continue;
        longest[c] = covered;
        row[c] = symbol(t.categories[s.instruction], s.batch);
      }
    }
    if (row.find_first_not_of('.') != std::string::npos)
      text += fmt::format("{:<{}}  {}\n", t.lane_names[lane], width, row);
  }
  return text;
}

}  // namespace tandem::engine
