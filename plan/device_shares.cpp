#include <tandem/plan/device_shares.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace tandem::engine {
namespace {

// Times from `begin` to `end`, in seconds.
struct Interval {
  double begin = 0, end = 0;
};
using Intervals = std::vector<Interval>;

double seconds(const Intervals& intervals) {
  double sum = 0;
  for (const Interval& i : intervals) sum += i.end - i.begin;
  return sum;
}

// Takes the times `wanted` out of `free`, whose intervals are in order and apart, and returns what it took.
Intervals take(Intervals& free, Intervals wanted) {
  std::ranges::sort(wanted, {}, &Interval::begin);
  Intervals taken, rest;
  auto at = free.begin();
  for (const Interval& w : wanted) {
    if (w.begin >= w.end) continue;
    for (; at != free.end() && at->begin < w.end; ++at) {
      if (at->begin < w.begin) rest.push_back({at->begin, std::min(at->end, w.begin)});
      const Interval both{std::max(at->begin, w.begin), std::min(at->end, w.end)};
      if (both.begin < both.end) taken.push_back(both);
      if (at->end > w.end) {
        at->begin = w.end;
        break;
      }
    }
  }
  rest.insert(rest.end(), at, free.end());
  free = std::move(rest);
  return taken;
}

// What waited for what in a timeline.
class Waiting {
 public:
  Waiting(const Program& program, const Timeline& timeline)
      : p_(program),
        spans_(timeline.spans),
        executions_(program.instructions.size()),
        ends_(program.instructions.size()),
        before_on_lane_(spans_.size()),
        queued_(spans_.size()),
        search_(spans_.size(), 0) {
    std::map<std::int64_t, std::vector<InstructionId>> channels;
    for (const InstructionId s : p_.instructions.ids())
      if (const std::int64_t channel = p_.instruction(s).channel; channel >= 0)
        channels[channel].push_back(s);
    for (const InstructionId s : p_.instructions.ids()) {
      const std::int64_t channel = p_.instruction(s).channel;
      ends_[s] = channel >= 0 ? channels[channel] : std::vector{s};
    }
    IdVector<LaneId, std::optional<std::size_t>> last(p_.lanes.size());
    for (std::size_t i = 0; i < spans_.size(); ++i) {
      executions_[spans_[i].instruction].push_back(i);
      before_on_lane_[i] = std::exchange(last[spans_[i].lane], i);
    }
    find_queued();
  }

  // The times of `idle` in which a device waits for a transfer that waits for its link: in which the next of
  // its computations does.
  Intervals queued(Intervals idle, const std::vector<std::size_t>& computations) {
    const auto begin_of = [&](std::size_t i) { return spans_[i].begin; };
    Intervals queued;
    for (Interval pause : take(idle, all_queued_)) {
      auto next = std::ranges::upper_bound(computations, pause.begin, {}, begin_of);
      for (; next != computations.end() && pause.begin < pause.end; ++next) {
        const double until = std::min(pause.end, begin_of(*next));
        for (const Interval& q : queued_before(*next, pause.begin))
          queued.push_back({std::max(q.begin, pause.begin), std::min(q.end, until)});
        pause.begin = until;
      }
    }
    return queued;
  }

 private:
  // The times after `begin` in which a transfer waits for its link without which `next` cannot begin.
  Intervals queued_before(std::size_t next, double begin) {
    Intervals queued;
    ++searches_;
    std::vector<std::size_t> open{next};
    while (!open.empty()) {
      const std::size_t span = open.back();
      open.pop_back();
      if (queued_[span].end > begin) queued.push_back(queued_[span]);
      for_each_awaited(span, [&](std::size_t awaited) {
        if (spans_[awaited].end <= begin || search_[awaited] == searches_) return;
        search_[awaited] = searches_;
        open.push_back(awaited);
      });
    }
    return queued;
  }

  std::optional<std::size_t> execution(InstructionId instruction, std::int64_t unit) const {
    const std::int64_t batch = unit - p_.instruction(instruction).lag;
    const auto& batches = executions_[instruction];
    if (batch < 0 || batch >= std::ssize(batches)) return std::nullopt;
    return batches[static_cast<std::size_t>(batch)];
  }

  // Visits what the instruction of a span, and the other ends of its transfer or barrier, waited for.
  template <class Visit> void for_each_waited(const Span& span, Visit visit) const {
    for (const InstructionId end : ends_[span.instruction])
      for (const Wait& wait : p_.instruction(end).waits)
        if (const auto awaited = execution(wait.instruction, span.unit - wait.back)) visit(*awaited);
  }

  // The same, and what came before on their lanes.
  template <class Visit> void for_each_awaited(std::size_t i, Visit visit) const {
    for_each_waited(spans_[i], visit);
    for (const InstructionId end : ends_[spans_[i].instruction])
      if (const auto own = execution(end, spans_[i].unit); own && before_on_lane_[*own])
        visit(*before_on_lane_[*own]);
  }

  // A transfer waits for its link from when it and those before it on the link could begin until it begins.
  void find_queued() {
    IdVector<LaneId, double> ready(p_.lanes.size(), 0);
    for (std::size_t i = 0; i < spans_.size(); ++i) {
      const Span& span = spans_[i];
      if (p_.lane(span.lane).kind != LaneKind::receive) continue;
      double& from = ready[span.lane];
      for_each_waited(span, [&](std::size_t awaited) { from = std::max(from, spans_[awaited].end); });
      queued_[i] = {from, span.begin};
      if (from < span.begin) all_queued_.push_back(queued_[i]);
    }
  }

  const Program& p_;
  const std::vector<Span>& spans_;                                // everything below counts their positions
  IdVector<InstructionId, std::vector<std::size_t>> executions_;  // by batch
  IdVector<InstructionId, std::vector<InstructionId>> ends_;      // all of its channel, or itself
  std::vector<std::optional<std::size_t>> before_on_lane_;
  std::vector<Interval> queued_;  // of receives
  Intervals all_queued_;
  std::vector<int> search_;  // the last search that found the span
  int searches_ = 0;
};

bool moves_bytes(LaneKind kind) {
  return kind == LaneKind::send || kind == LaneKind::receive || kind == LaneKind::collective;
}

// What a device did.
struct Device {
  Intervals computing, moving;
  std::vector<std::size_t> computations;  // with barriers and updates, in the order of their begins
};

std::vector<Device> devices_of(const Program& program, const std::vector<Span>& spans) {
  std::vector<Device> devices(static_cast<std::size_t>(program.devices));
  for (std::size_t i = 0; i < spans.size(); ++i) {
    const Lane& lane = program.lane(spans[i].lane);
    Device& device = devices[static_cast<std::size_t>(lane.device)];
    const Interval time{spans[i].begin, spans[i].end};
    if (moves_bytes(lane.kind)) device.moving.push_back(time);
    if (lane.kind != LaneKind::compute) continue;
    device.computing.push_back(time);
    device.computations.push_back(i);
  }
  for (Device& device : devices)
    std::ranges::stable_sort(device.computations, {}, [&](std::size_t i) { return spans[i].begin; });
  return devices;
}

}  // namespace

DeviceShares device_shares(const Program& program, const Timeline& timeline, double begin, double end,
                           const std::vector<int>& replicas) {
  Waiting waiting(program, timeline);
  DeviceShares sums;
  double all = 0;
  const std::vector<Device> devices = devices_of(program, timeline.spans);
  for (std::size_t d = 0; d < devices.size(); ++d) {
    const double count = replicas.at(d);
    Intervals free{{begin, end}};
    sums.busy += count * seconds(take(free, devices[d].computing));
    sums.transfer += count * seconds(take(free, devices[d].moving));
    sums.transfer_idle += count * seconds(take(free, waiting.queued(free, devices[d].computations)));
    sums.imbalance_idle += count * seconds(free);
    all += count * (end - begin);
  }
  return {sums.busy / all, sums.transfer / all, sums.transfer_idle / all, sums.imbalance_idle / all};
}

}  // namespace tandem::engine
