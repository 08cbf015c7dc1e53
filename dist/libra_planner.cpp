#include <tandem/dist/libra_planner.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include <tandem/core/base/error.h>

// LIBRA's dynamic program in a form that does less work and finds the same optimum. Let all computation be Z
// chunks of w ms. T(i, l, z) is the least time in which z chunks are computed and the first l layers reduced,
// in i groups. While computation lasts, an all-reduce of P ms with s of the computation's speed covers m =
// ⌈s·P/w⌉ chunks and costs κ = (1 − s)·P ms more than they take alone. So D(i, l, z) = T(i, l, z) − z·w is
// the sum of the prices κ:
//
//     D(i, l, z) = min over l', r of D(i − 1, l', z − m) + κ, if the gradients of layer l are ready at z − m.
//
// D falls with z, since waiting is allowed: no other start than z − m can be better. Only one all-reduce can
// begin within the computation and end after it (`finish`); all layers after it are then reduced at once.

namespace tandem {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr double kRounding = 1e-9;  // of chunks
constexpr double kRoundingOfMs = 1e-12;
constexpr int kNone = -1;  // chunks of an all-reduce of 0 bytes

struct From {  // where an all-reduce begins that ends here
  std::int32_t layers = -1;
  std::int32_t chunks : 24 = -1;
  std::int32_t choice : 8 = -1;
};
constexpr int kMostChunks = 8'000'000, kMostChoices = 100;  // what these hold

// By layers and chunks.
template <class T> class Table {
 public:
  Table(std::size_t layers, int chunks, T value)
      : width_(static_cast<std::size_t>(chunks) + 1), values_((layers + 1) * width_, value) {}
  T* operator[](std::size_t layers) { return &values_[layers * width_]; }
  const T* operator[](std::size_t layers) const { return &values_[layers * width_]; }
  bool operator==(const Table&) const = default;

 private:
  std::size_t width_;
  std::vector<T> values_;
};

class Planner {
 public:
  Planner(const std::vector<GradientLayer>& layers, const AllReduceCosts& costs, int chunks)
      : costs_(costs), chunks_(chunks), bytes_{0}, ready_{0} {
    double computed = 0;
    for (const GradientLayer& l : layers) total_ms_ += l.compute_ms;
    chunk_ms_ = total_ms_ / chunks;
    if (layers.empty() || !(chunk_ms_ > 0)) throw Error("a plan needs layers whose computation takes time");
    for (const GradientLayer& l : layers) {
      computed += l.compute_ms;
      bytes_.push_back(bytes_.back() + l.gradient_bytes);
      ready_.push_back(std::min(whole(computed / chunk_ms_ - kRounding), chunks));
    }
    ready_.back() = chunks;
  }

  LibraPlan plan(int groups) {
    if (groups >= static_cast<int>(layers())) return plan_without_limit();
    Table<double> before = no_group(), price = before;  // D with one group fewer, and with those of `from`
    std::vector<Table<From>> from;
    while (std::ssize(from) + 1 < groups) {
      Table<double> next = price;
      Table<From> next_from(layers(), chunks_, From());
      add_groups(price, next, next_from);
      before = std::exchange(price, std::move(next));
      if (price == before) break;  // more groups do not help
      from.push_back(std::move(next_from));
    }
    const std::size_t before_late = std::min(from.size(), static_cast<std::size_t>(std::max(groups - 2, 0)));
    const End end = best_end(price, before, groups > 1);
    std::size_t i = end.first < end.last ? before_late : from.size();
    return read_back(end, [&]() -> const Table<From>& { return from[--i]; });
  }

  /// Each layer is a group of its own.
  LibraPlan threads() {
    const std::size_t all = layers();
    Table<double> price = no_group();  // D after the first l groups
    Table<From> from(all, chunks_, From());
    std::vector<double> late(all + 1, kInfinite);  // the time if group l ends after the computation
    std::vector<From> late_from(all + 1);
    for (std::size_t l = 1; l <= all; ++l) {
      const double bytes = bytes_[l] - bytes_[l - 1];
      const int quickest = quickest_alone(bytes);
      late[l] = late[l - 1] + costs_.alone_ms(bytes, rates(quickest));
      late_from[l] = {0, -1, static_cast<int>(quickest)};
      for (int z = ready_[l]; z <= chunks_; ++z)
        for (int r = 0; r < std::ssize(costs_.choices); ++r) {
          const From begin{0, static_cast<int>(z), static_cast<int>(r)};
          const double ms = costs_.overlapped_ms(bytes, rates(r)), speed = rates(r).compute_rate;
          const int end = z + whole(speed * ms / chunk_ms_ - kRounding);
          if (const double d = price[l - 1][z] + (1 - speed) * ms; end <= chunks_ && d < price[l][end])
            price[l][end] = d, from[l][end] = begin;
          const double left = (chunks_ - z) * chunk_ms_;
          if (const double t = price[l - 1][z] + z * chunk_ms_ + ms_beside(left, bytes, r); t < late[l])
            late[l] = t, late_from[l] = begin;
        }
      for (int z = ready_[l] + 1; z <= chunks_; ++z)
        if (price[l][z - 1] < price[l][z]) price[l][z] = price[l][z - 1], from[l][z] = from[l][z - 1];
    }
    LibraPlan plan{{}, late[all]};
    int z = -1;  // while groups end after the computation
    for (std::size_t l = all; l > 0; --l) {
      const From& begin = z < 0 ? late_from[l] : from[l][z];
      plan.groups.push_back({static_cast<int>(l) - 1, static_cast<int>(l) - 1, rates(begin.choice)});
      z = begin.chunks;
    }
    std::ranges::reverse(plan.groups);
    return plan;
  }

 private:
  std::size_t layers() const { return ready_.size() - 1; }
  const ThreadRates& rates(int choice) const { return costs_.choices[static_cast<std::size_t>(choice)]; }

  // The least whole number that is not below; all numbers above `chunks_` become chunks_ + 1.
  int whole(double chunks) const {
    return static_cast<int>(std::clamp(std::ceil(chunks), 0.0, chunks_ + 1.0));
  }

  // D for no group at all.
  Table<double> no_group() const {
    Table<double> price(layers(), chunks_, kInfinite);
    std::fill_n(price[0], chunks_ + 1, 0.0);
    return price;
  }

  // One D for any number of groups: where a group ends, the next begins, in one table.
  LibraPlan plan_without_limit() {
    Table<double> price = no_group();
    Table<From> from(layers(), chunks_, From());
    add_groups(price, price, from);
    return read_back(best_end(price, price, true), [&]() -> const Table<From>& { return from; });
  }

  // Improves `now`, D(i), by groups that follow `before`, D(i − 1). Both may be one table, for groups end
  // later than they begin, or have later layers.
  void add_groups(const Table<double>& before, Table<double>& now, Table<From>& from) {
    std::size_t ready = 0;  // layers whose gradients are ready
    for (int z = 0; z <= chunks_; ++z) {
      while (ready < layers() && ready_[ready + 1] <= z) ++ready;
      for (std::size_t l = 1; l <= ready && z > 0; ++l)  // what was reached before is reached by waiting
        if (ready_[l] < z && now[l][z - 1] < now[l][z])
          now[l][z] = now[l][z - 1], from[l][z] = from[l][z - 1];
      for (int r = 0; r < std::ssize(costs_.choices) && z < chunks_; ++r)
        begin_groups(before, z, ready, r, now, from);
    }
  }

  // Groups of one choice that begin at chunk z. The layers l' from which one can begin are kept by rising
  // D(i − 1, l', z) − (price per byte)·(bytes up to l'): one further to the left is of use only if it is
  // better. Of those from which a group takes equally many chunks, only the leftmost is of use.
  void begin_groups(const Table<double>& before, int z, std::size_t ready, int choice, Table<double>& now,
                    Table<From>& from) {
    const double ms_per_byte = costs_.sent_per_byte / rates(choice).overlapped;
    const double speed = rates(choice).compute_rate;
    const double price_per_byte = (1 - speed) * ms_per_byte, first_price = (1 - speed) * costs_.startup_ms;
    const double chunks_per_byte = speed * ms_per_byte / chunk_ms_;
    const double first_chunks = speed * costs_.startup_ms / chunk_ms_ - kRounding;
    const double most_bytes = (chunks_ - z - first_chunks) / chunks_per_byte;
    const auto chunks_of = [&](double bytes) {  // none if there are no bytes, which cost nothing
      return bytes == 0 ? kNone : whole(bytes * chunks_per_byte + first_chunks);
    };
    const bool dense = layers() > static_cast<std::size_t>(chunks_);
    begins_.clear();
    std::size_t first = 0;  // of begins_ that are near enough
    for (std::size_t l = 1; l <= ready && most_bytes > 0; ++l) {
      if (const double d = before[l - 1][z]; d < kInfinite) {
        const double value = d - price_per_byte * bytes_[l - 1];
        while (begins_.size() > first && begins_.back().value >= value) begins_.pop_back();
        begins_.push_back({l - 1, value});
      }
      while (first < begins_.size() && bytes_[l] - bytes_[begins_[first].layers] > most_bytes) ++first;
      const double at = price_per_byte * bytes_[l] + first_price;
      const auto chunks_from = [&](const Begin& b) { return chunks_of(bytes_[l] - bytes_[b.layers]); };
      for (auto b = begins_.begin() + static_cast<std::ptrdiff_t>(first); b != begins_.end();) {
        const int m = chunks_from(*b), end = z + std::max(m, 0);
        const double value = b->value + (m == kNone ? price_per_byte * bytes_[l] : at);
        if (end <= chunks_ && value < now[l][end])
          now[l][end] = value, from[l][end] = {static_cast<std::int32_t>(b->layers), z, choice};
        const auto takes_as_many = [&](const Begin& other) { return chunks_from(other) >= m; };
        b = dense ? std::partition_point(b + 1, begins_.end(), takes_as_many) : b + 1;
      }
    }
  }

  int quickest_alone(double bytes) const {
    int best = 0;
    for (int r = 1; r < std::ssize(costs_.choices); ++r)
      if (costs_.alone_ms(bytes, rates(r)) < costs_.alone_ms(bytes, rates(best))) best = r;
    return best;
  }

  // Milliseconds from the begin of an all-reduce beside `left` ms of computation until both have ended.
  double ms_beside(double left, double bytes, int choice) const {
    const double p = costs_.overlapped_ms(bytes, rates(choice));
    if (p == 0) return left;
    const double computed = left / rates(choice).compute_rate;
    if (p <= computed) return p + left * (1 - p / computed);
    return computed + costs_.alone_ms(bytes, rates(choice)) * (1 - computed / p);
  }

  // How a plan ends: `late`, a group that begins at chunk z, within the computation, and ends after it,
  // unless it has no layers; and all layers after it.
  struct End {
    double ms = kInfinite;
    std::size_t first = 0, last = 0;  // the late group has the layers from first until last
    int z = 0, choice = 0;
  };

  // `price` allows one group more, and `before_late` two.
  End best_end(const Table<double>& price, const Table<double>& before_late, bool several) const {
    const std::size_t all = layers();
    std::vector<double> rest(all + 1);
    for (std::size_t l = 0; l <= all; ++l)
      rest[l] = costs_.alone_ms(bytes_[all] - bytes_[l], rates(quickest_alone(bytes_[all] - bytes_[l])));
    End best;
    for (std::size_t l = 0; l <= all; ++l)
      if (const double ms = price[l][chunks_] + total_ms_ + rest[l]; ms < best.ms)
        best = {ms, l, l, chunks_, 0};
    for (std::size_t first = 0; several && first < all; ++first) {
      const double* d = before_late[first];
      for (std::size_t last = first + 1; last < all; ++last) {
        if (d[chunks_] + total_ms_ + rest[last] >= best.ms) continue;
        const double bytes = bytes_[last] - bytes_[first], most_left = (chunks_ - ready_[last]) * chunk_ms_;
        for (int r = 0; r < std::ssize(costs_.choices); ++r) {
          // What the group adds to the computation is linear in what is left of that, and then constant.
          const double added = std::min(ms_beside(0, bytes, r), ms_beside(most_left, bytes, r) - most_left);
          if (d[chunks_] + total_ms_ + added + rest[last] > best.ms * (1 + kRoundingOfMs)) continue;
          for (int z = ready_[last]; z < chunks_; ++z) {
            if (d[z] == kInfinite) continue;
            const double left = (chunks_ - z) * chunk_ms_;
            const double ms = d[z] + z * chunk_ms_ + ms_beside(left, bytes, r) + rest[last];
            if (ms < best.ms) best = {ms, first, last, z, r};
          }
        }
      }
    }
    return best;
  }

  // The plan that ends so. `previous` returns where the groups of the number before begin.
  template <class F> LibraPlan read_back(const End& end, F previous) const {
    const std::size_t all = layers();
    LibraPlan plan{{}, end.ms};
    const auto add = [&](std::size_t first, std::size_t last, int choice) {
      if (first < last)
        plan.groups.push_back({static_cast<int>(first), static_cast<int>(last) - 1, rates(choice)});
    };
    add(end.last, all, quickest_alone(bytes_[all] - bytes_[end.last]));
    add(end.first, end.last, end.choice);
    std::size_t l = end.first;
    for (int z = end.z; l > 0;) {
      const From& begin = previous()[l][z];
      if (begin.layers < 0) continue;  // as with fewer groups
      add(static_cast<std::size_t>(begin.layers), l, begin.choice);
      l = static_cast<std::size_t>(begin.layers);
      z = begin.chunks;
    }
    std::ranges::reverse(plan.groups);
    return plan;
  }

  struct Begin {
    std::size_t layers;
    double value;
  };
  const AllReduceCosts& costs_;
  const int chunks_;
  double total_ms_ = 0, chunk_ms_ = 0;
  std::vector<double> bytes_;  // of the first l layers
  std::vector<int> ready_;     // chunks after which the gradients of the first l layers are there
  std::vector<Begin> begins_;
};

// A planner makes so many tables, more if it may make more groups.
void check(std::size_t layers, const AllReduceCosts& costs, int chunks, double tables, bool by_groups) {
  if (chunks < 1 || chunks > kMostChunks)
    throw Error(fmt::format("{} chunks: there must be 1 to {}", chunks, kMostChunks));
  if (costs.choices.empty() || std::ssize(costs.choices) > kMostChoices)
    throw Error(fmt::format("a plan needs 1 to {} numbers of threads to choose from", kMostChoices));
  static_assert(sizeof(From) == sizeof(double));
  constexpr double kMostBytes = 2e9;
  const double rows = static_cast<double>(layers) + 1,
               most = std::max(std::floor(kMostBytes / (sizeof(double) * rows * tables)) - 1, 0.0);
  if (chunks > most)
    throw Error(
        fmt::format("{} chunks of {} need tables of {:.1f} GB, of which a planner may have {:.0f}: "
                    "take at most {:.0f} chunks (--chunks){}",
                    chunks, counted(static_cast<std::int64_t>(layers), "layer"),
                    sizeof(double) * rows * tables * (chunks + 1.0) / 1e9, kMostBytes / 1e9, most,
                    by_groups ? ", or fewer groups (--groups)" : ""));
}

}  // namespace

LibraPlan plan_libra(const std::vector<GradientLayer>& layers, const AllReduceCosts& costs,
                     const LibraLimits& limits) {
  if (limits.groups < 1) throw Error(fmt::format("{} groups: there must be at least one", limits.groups));
  const bool is_limit = limits.groups < std::ssize(layers);
  check(layers.size(), costs, limits.chunks, is_limit ? limits.groups + 2.0 : 2, is_limit);
  return Planner(layers, costs, limits.chunks).plan(limits.groups);
}

LibraPlan plan_threads(const std::vector<GradientLayer>& layers, std::vector<AllReduceGroup> groups,
                       const AllReduceCosts& costs, int chunks) {
  check(layers.size(), costs, chunks, 2, false);
  require_each_layer_once(layers, groups);
  std::vector<GradientLayer> merged;
  for (const AllReduceGroup& g : groups) {
    GradientLayer& all = merged.emplace_back();
    for (int l = g.first_layer; l <= g.last_layer; ++l) {
      const GradientLayer& layer = layers[static_cast<std::size_t>(l)];
      all.compute_ms += layer.compute_ms;
      all.gradient_bytes += layer.gradient_bytes;
    }
  }
  const LibraPlan plan = Planner(merged, costs, chunks).threads();
  for (std::size_t i = 0; i < groups.size(); ++i) groups[i].rates = plan.groups[i].rates;
  return {std::move(groups), plan.grid_ms};
}

}  // namespace tandem
