#include "busy_share.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>
#include <vector>

namespace tandem::apps {
using namespace engine;
namespace {

// Seconds that lie in at least one of the parts, which are from begin to end.
double united(std::vector<std::pair<double, double>> parts) {
  std::ranges::sort(parts);
  double seconds = 0, until = -std::numeric_limits<double>::infinity();
  for (const auto& [begin, end] : parts) {
    seconds += std::max(0.0, end - std::max(begin, until));
    until = std::max(until, end);
  }
  return seconds;
}

}  // namespace

double busy_share(const Program& program, const Timeline& timeline, std::int64_t first, std::int64_t end) {
  std::map<int, std::vector<std::pair<double, double>>> computed;  // by device
  double begin = std::numeric_limits<double>::infinity(), until = -begin;
  for (const Span& span : timeline.spans) {
    const Lane& lane = program.lane(span.lane);
    if (span.unit < first || span.unit >= end || lane.kind != LaneKind::compute) continue;
    begin = std::min(begin, span.begin);
    until = std::max(until, span.end);
    computed[lane.device].emplace_back(span.begin, span.end);
  }
  double busy = 0;
  for (auto& [device, parts] : computed) busy += united(std::move(parts));
  return busy / (program.devices * (until - begin));
}

}  // namespace tandem::apps
