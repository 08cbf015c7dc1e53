#include <tandem/dist/all_reduce_costs.h>

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tandem/core/base/error.h>

namespace tandem {

double ContentionModel::Curve::at(double threads) const {
  return gamma1 - gamma2 * std::exp(-gamma3 * std::pow(threads, gamma4));
}

ThreadRates ContentionModel::at(int threads) const {
  const double r = threads;
  const ThreadRates rates{threads, alpha1 - alpha2 * r, overlapped.at(r), alone.at(r)};
  for (const auto& [name, rate] : {std::pair("of computation, α1 − α2·r,", rates.compute_rate),
                                   std::pair("of an all-reduce beside computation", rates.overlapped),
                                   std::pair("of an all-reduce alone", rates.alone)})
    if (!(rate > 0) || !std::isfinite(rate))
      throw Error(fmt::format("the contention model gives {} a speed {} of {:.3g}: it must be above 0",
                              counted(threads, "thread"), name, rate));
  return rates;
}

ThreadRates Contention::at(int threads) const {
  if (const auto* model = std::get_if<ContentionModel>(&rates_)) return model->at(threads);
  const auto& table = std::get<std::vector<ThreadRates>>(rates_);
  const auto found = std::ranges::find(table, threads, &ThreadRates::threads);
  if (found == table.end())
    throw Error(fmt::format("there are no rates for {}, only for {}", counted(threads, "thread"),
                            fmt::join(known_threads(), ", ")));
  return *found;
}

std::vector<int> Contention::known_threads() const {
  std::vector<int> known;
  if (const auto* table = std::get_if<std::vector<ThreadRates>>(&rates_))
    for (const ThreadRates& r : *table) known.push_back(r.threads);
  return known;
}

std::vector<int> Contention::choices(const std::vector<int>& threads,
                                     std::vector<std::string>& warnings) const {
  std::vector<int> choices;
  for (const int r : threads) try {
      choices.push_back(at(r).threads);
    } catch (const Error& e) {
      warnings.push_back(fmt::format("{} cannot be chosen: {}", counted(r, "thread"), e.what()));
    }
  return choices;
}

double AllReduceCosts::overlapped_ms(double bytes, const ThreadRates& rates) const {
  return bytes > 0 ? startup_ms + bytes * sent_per_byte / rates.overlapped : 0;
}

double AllReduceCosts::alone_ms(double bytes, const ThreadRates& rates) const {
  return bytes > 0 ? startup_ms + bytes * sent_per_byte / rates.alone : 0;
}

AllReduceCosts ring_costs(int ranks, double hop_ms, std::vector<ThreadRates> choices) {
  if (ranks < 1) throw Error(fmt::format("a ring of {} ranks: there must be at least one", ranks));
  const double hops = 2.0 * (ranks - 1);
  return {hops * hop_ms, hops / ranks, std::move(choices)};
}

void require_each_layer_once(const std::vector<GradientLayer>& layers,
                             const std::vector<AllReduceGroup>& groups) {
  int next = 0;
  for (const AllReduceGroup& group : groups) {
    if (group.first_layer != next || group.last_layer < group.first_layer ||
        group.last_layer >= std::ssize(layers))
      throw Error(fmt::format("the groups must hold each of {} once, in order: {} to {} come after {}",
                              counted(std::ssize(layers), "layer"), group.first_layer, group.last_layer,
                              next));
    next = group.last_layer + 1;
  }
  if (next != std::ssize(layers))
    throw Error(fmt::format("the groups hold {} of {}", next, counted(std::ssize(layers), "layer")));
}

BackwardTimes backward_times(const std::vector<GradientLayer>& layers,
                             const std::vector<AllReduceGroup>& groups, const AllReduceCosts& costs) {
  require_each_layer_once(layers, groups);
  double total = 0, ready = 0,
         done = 0;  // computation: all, up to the group's last layer, finished; as if alone
  for (const GradientLayer& l : layers) total += l.compute_ms;
  BackwardTimes times;
  std::size_t next = 0;
  for (const AllReduceGroup& group : groups) {
    if (group.earliest_ms > 0) throw Error("Eqs. 8 to 15 have no groups that wait for a time");
    double bytes = 0;
    for (; next <= static_cast<std::size_t>(group.last_layer); ++next) {
      bytes += layers[next].gradient_bytes;
      ready += layers[next].compute_ms;
    }
    if (next == layers.size()) ready = total;
    times.compute_ms += std::max(0.0, ready - done);
    done = std::max(done, ready);
    const double p = costs.overlapped_ms(bytes, group.rates), speed = group.rates.compute_rate;
    if (p == 0) continue;
    const double beside = std::min(p, (total - done) / speed);
    times.compute_ms += beside;
    done = p < (total - done) / speed ? done + speed * p : total;
    times.residual_ms += costs.alone_ms(bytes, group.rates) * (1 - beside / p);
  }
  times.backward_ms = times.compute_ms + times.residual_ms;
  return times;
}

}  // namespace tandem
