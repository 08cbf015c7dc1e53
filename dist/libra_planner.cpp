#include <tandem/dist/libra_planner.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

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

struct From {  // where an all-reduce begins that ends here
  std::int32_t layers = -1;
  std::int16_t chunks = -1;
  std::int16_t choice = -1;
};

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
    if (layers.empty() || !(total_ms_ > 0)) throw Error("a plan needs layers whose computation takes time");
    chunk_ms_ = total_ms_ / chunks;
    for (const GradientLayer& l : layers) {
      computed += l.compute_ms;
      bytes_.push_back(bytes_.back() + l.gradient_bytes);
      ready_.push_back(std::clamp(static_cast<int>(std::ceil(computed / chunk_ms_ - kRounding)), 0, chunks));
    }
    ready_.back() = chunks;
  }

  LibraPlan plan(int groups) {
    std::vector<Table<double>> price;  // D by number of groups
    std::vector<Table<From>> from;
    price.emplace_back(layers(), chunks_, kInfinite);
    std::fill_n(price[0][0], chunks_ + 1, 0.0);
    while (std::ssize(price) < groups) {
      Table<double> next = price.back();
      Table<From> next_from(layers(), chunks_, From());
      for (int r = 0; r < std::ssize(costs_.choices); ++r) add_group(price.back(), r, next, next_from);
      wait(next, next_from);
      if (next == price.back()) break;  // more groups do not help
      price.push_back(std::move(next));
      from.push_back(std::move(next_from));
    }
    return finish(price, from, groups);
  }

  /// Each layer is a group of its own.
  LibraPlan threads() {
    const std::size_t all = layers();
    Table<double> price(all, chunks_, kInfinite);  // D after the first l groups
    Table<From> from(all, chunks_, From());
    std::fill_n(price[0], chunks_ + 1, 0.0);
    std::vector<double> late(all + 1, kInfinite);  // the time if group l ends after the computation
    std::vector<From> late_from(all + 1);
    for (std::size_t l = 1; l <= all; ++l) {
      const double bytes = bytes_[l] - bytes_[l - 1];
      const int quickest = quickest_alone(bytes);
      late[l] = late[l - 1] + costs_.alone_ms(bytes, quickest);
      late_from[l] = {0, -1, static_cast<std::int16_t>(quickest)};
      for (int z = ready_[l]; z <= chunks_; ++z)
        for (int r = 0; r < std::ssize(costs_.choices); ++r) {
          const From begin{0, static_cast<std::int16_t>(z), static_cast<std::int16_t>(r)};
          const double ms = costs_.overlapped_ms(bytes, r),
                       speed = costs_.choices[static_cast<std::size_t>(r)].compute_rate;
          const int end = z + std::max(0, static_cast<int>(std::ceil(speed * ms / chunk_ms_ - kRounding)));
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
      plan.groups.push_back({static_cast<int>(l) - 1, static_cast<int>(l) - 1, begin.choice});
      z = begin.chunks;
    }
    std::ranges::reverse(plan.groups);
    return plan;
  }

 private:
  std::size_t layers() const { return ready_.size() - 1; }

  // Improves D(i) by groups of one choice that follow D(i − 1). For a start z, the layers l' from which a
  // group can begin are kept by rising D(i − 1, l', z) − (price per byte)·(bytes up to l'): one further to
  // the left is of use only if it is better.
  void add_group(const Table<double>& before, int choice, Table<double>& now, Table<From>& from) {
    const ThreadRates& rates = costs_.choices[static_cast<std::size_t>(choice)];
    const double ms_per_byte = costs_.sent_per_byte / rates.overlapped;
    const double price_per_byte = (1 - rates.compute_rate) * ms_per_byte;
    const double first_price = (1 - rates.compute_rate) * costs_.startup_ms;
    const double chunks_per_byte = rates.compute_rate * ms_per_byte / chunk_ms_;
    const double first_chunks = rates.compute_rate * costs_.startup_ms / chunk_ms_ - kRounding;
    std::size_t ready = 0;  // layers whose gradients are ready
    for (int z = 0; z < chunks_; ++z) {
      while (ready < layers() && ready_[ready + 1] <= z) ++ready;
      const double most_bytes = (chunks_ - z - first_chunks) / chunks_per_byte;
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
        for (std::size_t k = begins_.size(); k-- > first;) {
          const double bytes = bytes_[l] - bytes_[begins_[k].layers];
          const bool none = bytes == 0;  // costs nothing
          const int m =
              none ? 0 : std::max(0, static_cast<int>(std::ceil(bytes * chunks_per_byte + first_chunks)));
          const double value = begins_[k].value + (none ? price_per_byte * bytes_[l] : at);
          if (z + m > chunks_ || value >= now[l][z + m]) continue;
          now[l][z + m] = value;
          from[l][z + m] = {static_cast<std::int32_t>(begins_[k].layers), static_cast<std::int16_t>(z),
                            static_cast<std::int16_t>(choice)};
        }
      }
    }
  }

  // What is reached at z is reached at z + 1.
  void wait(Table<double>& price, Table<From>& from) const {
    for (std::size_t l = 0; l <= layers(); ++l)
      for (int z = ready_[l] + 1; z <= chunks_; ++z)
        if (price[l][z - 1] < price[l][z]) price[l][z] = price[l][z - 1], from[l][z] = from[l][z - 1];
  }

  int quickest_alone(double bytes) const {
    int best = 0;
    for (int r = 1; r < std::ssize(costs_.choices); ++r)
      if (costs_.alone_ms(bytes, r) < costs_.alone_ms(bytes, best)) best = r;
    return best;
  }

  // Milliseconds from the begin of an all-reduce beside `left` ms of computation until both have ended.
  double ms_beside(double left, double bytes, int choice) const {
    if (bytes == 0) return left;
    const double p = costs_.overlapped_ms(bytes, choice);
    const double computed = left / costs_.choices[static_cast<std::size_t>(choice)].compute_rate;
    if (p <= computed) return p + left * (1 - p / computed);
    return computed + costs_.alone_ms(bytes, choice) * (1 - computed / p);
  }

  // How a plan ends: `late`, a group that begins at chunk z, within the computation, and ends after it,
  // unless it has no layers; and all layers after it.
  struct End {
    double ms = kInfinite;
    std::size_t first = 0, last = 0;  // the late group has the layers from first until last
    int z = 0, choice = 0;
  };

  LibraPlan finish(const std::vector<Table<double>>& price, const std::vector<Table<From>>& from,
                   int groups) const {
    const std::size_t all = layers(), steps = price.size() - 1;
    std::vector<double> rest(all + 1);
    for (std::size_t l = 0; l <= all; ++l)
      rest[l] = costs_.alone_ms(bytes_[all] - bytes_[l], quickest_alone(bytes_[all] - bytes_[l]));
    End best;
    for (std::size_t l = 0; l <= all; ++l)
      if (const double ms = price[steps][l][chunks_] + total_ms_ + rest[l]; ms < best.ms)
        best = {ms, l, l, chunks_, 0};
    const std::size_t before_late = std::min(steps, static_cast<std::size_t>(std::max(groups - 2, 0)));
    for (std::size_t first = 0; groups > 1 && first < all; ++first) {
      const double* d = price[before_late][first];
      for (std::size_t last = first + 1; last < all; ++last) {
        if (d[chunks_] + total_ms_ + rest[last] >= best.ms) continue;
        for (int r = 0; r < std::ssize(costs_.choices); ++r)
          for (int z = ready_[last]; z < chunks_; ++z) {
            if (d[z] == kInfinite) continue;
            const double left = (chunks_ - z) * chunk_ms_;
            const double ms =
                d[z] + z * chunk_ms_ + ms_beside(left, bytes_[last] - bytes_[first], r) + rest[last];
            if (ms < best.ms) best = {ms, first, last, z, r};
          }
      }
    }
    LibraPlan plan{{}, best.ms};
    const auto add = [&](std::size_t first, std::size_t last, int choice) {
      if (first < last) plan.groups.push_back({static_cast<int>(first), static_cast<int>(last) - 1, choice});
    };
    add(best.last, all, quickest_alone(bytes_[all] - bytes_[best.last]));
    add(best.first, best.last, best.choice);
    std::size_t l = best.first, i = best.first < best.last ? before_late : steps;
    for (int z = best.z; l > 0; --i) {
      const From& begin = from[i - 1][l][z];
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

void check(const AllReduceCosts& costs, int chunks) {
  constexpr int kMostChunks = 30'000;
  if (chunks < 1 || chunks > kMostChunks)
    throw Error(fmt::format("{} chunks: there must be 1 to {}", chunks, kMostChunks));
  if (costs.choices.empty()) throw Error("a plan needs a number of threads to choose");
}

}  // namespace

LibraPlan plan_libra(const std::vector<GradientLayer>& layers, const AllReduceCosts& costs,
                     const LibraLimits& limits) {
  check(costs, limits.chunks);
  if (limits.groups < 1) throw Error(fmt::format("{} groups: there must be at least one", limits.groups));
  return Planner(layers, costs, limits.chunks).plan(limits.groups);
}

LibraPlan plan_threads(const std::vector<GradientLayer>& layers, std::vector<AllReduceGroup> groups,
                       const AllReduceCosts& costs, int chunks) {
  check(costs, chunks);
  std::vector<GradientLayer> merged;
  for (const AllReduceGroup& g : groups) {
    GradientLayer& all = merged.emplace_back();
    for (int l = g.first_layer; l <= g.last_layer; ++l) {
      const GradientLayer& layer = layers.at(static_cast<std::size_t>(l));
      all.compute_ms += layer.compute_ms;
      all.gradient_bytes += layer.gradient_bytes;
    }
  }
  const LibraPlan plan = Planner(merged, costs, chunks).threads();
  for (std::size_t i = 0; i < groups.size(); ++i) groups[i].choice = plan.groups[i].choice;
  backward_times(layers, groups, costs);  // throws Error unless they hold each layer once
  return {std::move(groups), plan.grid_ms};
}

}  // namespace tandem
