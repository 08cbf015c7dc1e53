#include <tandem/memory/optimal_bound.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <tuple>

namespace tandem::engine::optimal {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

}  // namespace

LowerBound::LowerBound(const NumberedProblem& problem, std::int64_t limit, bool copies)
    : p_(problem), limit_(limit), copies_(copies) {
  if (!p_.problem().is_ring()) find_tight_places();  // a ring's nodes have no order yet
}

// A repeated node makes all of its outputs: each has its share of the time.
LowerBound::Away LowerBound::away(const Label& l, int number) const {
  const int v = p_.value(number);
  const auto [g, n] = p_.maker[static_cast<std::size_t>(number)];
  double again = kNever;
  if (n >= 0 && p_.may_repeat(l, g, n))
    if (const Set made = p_.made_by(g, n); (made & p_.intermediate) == made)
      again = p_.node(g, n).run_ms / std::popcount(made);
  return {copies_ ? p_.problem().copy_ms(v) : kNever, again,
          p_.problem().values[static_cast<std::size_t>(v)].bytes, left_after_first_reader(l, p_.set_of(v))};
}

void LowerBound::find_tight_places() {
  Set made_outputs = 0;
  for (int i = 0; i < p_.places(0); ++i) {
    const MemoryNode& n = p_.at(0, i);
    const Set in = p_.read_at(0, i), out = p_.made_at(0, i), later = p_.read_later(0, i + 1);
    made_outputs |= out & p_.outputs;
    Tight t{i, later & p_.intermediate & ~(in | out), 0, {}};
    const Set there = in | out | made_outputs | (later & ~t.may_be_away);
    t.excess = p_.problem().static_bytes + p_.bytes_of(there | t.may_be_away) + n.workspace_bytes - limit_;
    if (t.excess <= 0) continue;
    t.ways = ways_of(t);
    tight_.push_back(std::move(t));
  }
}

// Each value stays, leaves for the host, or is made again. Those that are read first return first.
std::vector<LowerBound::Way> LowerBound::ways_of(const Tight& t) const {
  Label after{};
  after.ran[0] = t.place + 1;
  std::vector<Away> values;
  for (Set s = t.may_be_away; s != 0; s &= s - 1) values.push_back(away(after, std::countr_zero(s)));
  std::ranges::stable_sort(values, std::greater<>(), &Away::left_ms);
  std::vector<Way> ways{{}};
  for (const Away& v : values) {
    std::vector<Way> all = ways;
    for (const Way& w : ways) {
      const std::int64_t bytes = std::min(w.bytes + v.bytes, t.excess);
      if (v.again_ms < kNever) all.push_back({bytes, w.again_ms + v.again_ms, w.copy_ms, w.back_ms});
      if (v.copy_ms < kNever)
        all.push_back({bytes, w.again_ms, w.copy_ms + v.copy_ms,
                       std::max(w.back_ms, w.copy_ms + v.copy_ms + v.left_ms)});
    }
    std::ranges::sort(all, [](const Way& a, const Way& b) {
      return std::tie(b.bytes, a.again_ms, a.copy_ms, a.back_ms) <
             std::tie(a.bytes, b.again_ms, b.copy_ms, b.back_ms);
    });
    ways.clear();
    for (const Way& w : all)
      if (std::ranges::none_of(ways, [&](const Way& other) {
            return other.again_ms <= w.again_ms && other.copy_ms <= w.copy_ms && other.back_ms <= w.back_ms;
          }))
        ways.push_back(w);
  }
  return ways;
}

// What the compute lane has left from the first node on that has not run and reads the value.
double LowerBound::left_after_first_reader(const Label& l, Set s) const {
  for (int g = 0; g < p_.graphs(); ++g)
    for (int i = l.ran[static_cast<std::size_t>(g)]; i < p_.places(g); ++i)
      if (p_.read_at(g, i) & s) return p_.left_ms(g, i);
  return 0;
}

// The nodes that made what is read later and is nowhere any more must run once more. Infinite if they cannot.
double LowerBound::lost_ms(const Label& l, Set& made_again) const {
  double ms = 0;
  const Set gone = (p_.of_forward | p_.inputs) & ~(l.resident | l.host | l.to_device);
  Set lost = p_.read_later(l) & gone;
  made_again = lost;
  while (lost != 0) {
    const auto [g, n] = p_.maker[static_cast<std::size_t>(std::countr_zero(lost))];
    if (n < 0 || !p_.may_repeat(l, g, n)) return kNever;
    const Set out = p_.made_by(g, n);
    ms += p_.node(g, n).run_ms;
    const Set needed = p_.read_by(g, n) & gone & ~made_again;
    lost = (lost & ~out) | needed;
    made_again |= needed | out;
  }
  return ms;
}

// Values that are on the host alone, and read later, return through one channel or are made again. Of those
// that the first readers need, all must be there before the rest of the nodes runs.
double LowerBound::with_returns(const Label& l, double compute_end, Set made_again) const {
  std::array<Away, kMostValues> all;
  std::size_t count = 0;
  for (Set s = p_.read_later(l) & l.host & ~(l.resident | l.to_device); s != 0; s &= s - 1) {
    all[count] = away(l, std::countr_zero(s));
    if (made_again & (s & -s)) all[count].again_ms = 0;
    ++count;
  }
  if (count == 0) return compute_end;
  std::sort(all.begin(), all.begin() + count,
            [](const Away& a, const Away& b) { return a.again_ms * b.copy_ms < b.again_ms * a.copy_ms; });
  const double free = std::max(l.channels[p_.problem().link.duplex ? 1 : 0], l.clock);
  double latest = compute_end;
  for (std::size_t first = 0; first < count; ++first) {
    const double left = all[first].left_ms;  // these are all that are read no later than it
    double computes = compute_end, copies = free + left;
    for (std::size_t i = 0; i < count; ++i)
      if (all[i].left_ms >= left) copies += all[i].copy_ms;
    for (std::size_t i = 0; i < count && copies > computes; ++i) {
      if (all[i].left_ms < left || all[i].again_ms == kNever) continue;
      const double whole = all[i].again_ms + all[i].copy_ms,
                   part = whole > 0 ? std::min(1.0, (copies - computes) / whole) : 1;
      computes += part * all[i].again_ms;
      copies -= part * all[i].copy_ms;
    }
    latest = std::max({latest, computes, copies});
  }
  return latest;
}

// While the node runs, `excess` bytes are away in the best of ways: the host has copies before, and from then
// on they return. What is made again in any case is away for nothing.
double LowerBound::with_tight_place(const Label& l, const Tight& t, double compute_end,
                                    Set made_again) const {
  const double begin = l.clock + p_.left_ms(0, l.ran[0]) - p_.left_ms(0, t.place),
               run = p_.at(0, t.place).run_ms, after = p_.left_ms(0, t.place + 1);
  const std::int64_t excess = t.excess - p_.bytes_of(t.may_be_away & made_again);
  const double to_ms = copies_ ? 1 / p_.problem().link.bytes_per_ms : 0;
  const auto copy_ms = [&](Set s) { return static_cast<double>(p_.bytes_of(s)) * to_ms; };
  // From here on the channel to the host has moved, or will have moved, what is not there yet.
  const double out = std::max(l.channels[0], l.clock) - copy_ms(l.to_host),
               on_host = copy_ms(t.may_be_away & l.host);
  double least = kNever;
  for (const Way& w : t.ways) {
    if (w.bytes < excess) break;
    const double gone = w.copy_ms > on_host ? std::max(begin, out + w.copy_ms - on_host) : begin;
    least = std::min(
        least, std::max(compute_end + w.again_ms, gone + run + std::max(after + w.again_ms, w.back_ms)));
  }
  return least;
}

LowerBound::Work LowerBound::work(const Label& l) const {
  Work work{l.clock, 0};
  work.end_ms += lost_ms(l, work.made_again);
  for (int g = 0; g < p_.graphs(); ++g) work.end_ms += p_.left_ms(g, l.ran[static_cast<std::size_t>(g)]);
  return work;
}

LowerBound::Work LowerBound::without(const Label& l, const Work& work, int v) const {
  const Set s = p_.set_of(v);
  if (!(s & p_.read_later(l)) || (s & (l.host | l.to_host | work.made_again))) return work;
  const auto [g, n] = p_.maker[static_cast<std::size_t>(std::countr_zero(s))];
  if (n < 0 || !p_.may_repeat(l, g, n)) return {kNever, work.made_again};
  return {work.end_ms + p_.node(g, n).run_ms, work.made_again | p_.made_by(g, n)};
}

double LowerBound::end_ms(const Label& l, double enough) const {
  const auto [compute_end, made_again] = work(l);
  double end = compute_end;
  for (const Copy& copy : l.copies) {
    const Set s = p_.set_of(copy.value);
    end = std::max(end, copy.end + (l.to_device & s ? left_after_first_reader(l, s) : 0));
  }
  if (end < enough) end = std::max(end, with_returns(l, compute_end, made_again));
  for (auto t = tight_.begin(); t != tight_.end() && end < enough; ++t)
    if (t->place >= l.ran[0]) end = std::max(end, with_tight_place(l, *t, compute_end, made_again));
  return end;
}

}  // namespace tandem::engine::optimal
