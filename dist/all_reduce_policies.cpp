#include <tandem/dist/all_reduce_policies.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include <tandem/core/base/error.h>
#include <tandem/core/base/named.h>
#include <tandem/dist/backward_program.h>

namespace tandem {
namespace {

using Groups = std::vector<AllReduceGroup>;

constexpr double kMiB = 1 << 20;
constexpr double kRoundingMs = 1e-9;

// Layers `first` to `last`, reduced by the threads of policies that choose none.
AllReduceGroup baseline_group(const AllReduceProblem& p, int first, int last, double bytes) {
  return {first, last, p.baseline(bytes)};
}

AllReducePlan predicted(const AllReduceProblem& p, Groups groups) {
  const auto times = engine::simulate_backward(p.layers, groups, p.costs).times;
  return {{}, std::move(groups), times};
}

// Groups of consecutive layers. A group that holds `bytes` ends before the next layer if `ends` says so.
template <class F> Groups grouped(const AllReduceProblem& p, F ends) {
  Groups groups;
  double bytes = 0;
  for (int first = 0, l = 0; l < std::ssize(p.layers); ++l) {
    bytes += p.layers[static_cast<std::size_t>(l)].gradient_bytes;
    if (l + 1 < std::ssize(p.layers) && !ends(static_cast<std::size_t>(l), bytes, groups.size())) continue;
    groups.push_back(baseline_group(p, first, l, bytes));
    first = l + 1;
    bytes = 0;
  }
  return groups;
}

AllReducePlan se(const AllReduceProblem& p) {
  return predicted(p, grouped(p, [](auto...) { return false; }));
}

AllReducePlan wfbp(const AllReduceProblem& p) {
  return predicted(p, grouped(p, [](auto...) { return true; }));
}

// A bucket is full once it has reached its limit, so that it can pass it.
AllReducePlan ddp(const AllReduceProblem& p) {
  return predicted(p, grouped(p, [](std::size_t, double bytes, std::size_t buckets) {
                     return bytes >= (buckets == 0 ? 1 : 25) * kMiB;
                   }));
}

// At every tick, the gradients that are computed by then are reduced, in order, as many together as the
// fusion buffer holds. What begins at a tick changes only what is computed after it.
AllReducePlan horovod(const AllReduceProblem& p) {
  const bool reduces = p.costs.sent_per_byte > 0;  // one rank does not
  const int layers = static_cast<int>(std::ssize(p.layers));
  Groups groups;
  int next = 0;  // the first layer in no group
  while (next < layers) {
    Groups with_rest = groups;
    with_rest.push_back({next, layers - 1, p.baseline(0)});
    const auto ends = engine::simulate_backward(p.layers, with_rest, p.costs).layer_end_ms;
    const double tick =
        p.cycle_ms * std::ceil((ends[static_cast<std::size_t>(next)] - kRoundingMs) / p.cycle_ms);
    const auto ready = [&](int l) {
      return l < layers && ends[static_cast<std::size_t>(l)] <= tick + kRoundingMs;
    };
    while (ready(next)) {
      const int first = next;
      double bytes = p.layers[static_cast<std::size_t>(next++)].gradient_bytes;
      for (; ready(next); ++next) {
        const double more = p.layers[static_cast<std::size_t>(next)].gradient_bytes;
        if (bytes + more > p.fusion_bytes) break;
        bytes += more;
      }
      groups.push_back(baseline_group(p, first, next - 1, bytes));
      if (bytes > 0 && reduces) groups.back().earliest_ms = tick;
    }
  }
  return predicted(p, std::move(groups));
}

// Shi, Chu and Li 2019, without contention: an all-reduce takes the time it takes beside computation. A group
// waits for the next layer if that is ready before the group could begin and have started up.
Groups merged_gradients(const AllReduceProblem& p) {
  double ready = p.layers[0].compute_ms, begin = ready;
  return grouped(p, [&](std::size_t l, double bytes, std::size_t) {
    ready += p.layers[l + 1].compute_ms;
    const bool ends = bytes > 0 && ready >= begin + p.costs.startup_ms;
    if (ends) begin += p.costs.overlapped_ms(bytes, p.baseline(bytes));
    begin = std::max(begin, ready);
    return ends;
  });
}

AllReducePlan mg_wfbp(const AllReduceProblem& p) { return predicted(p, merged_gradients(p)); }

// The optimum of MG-WFBP's model: E(l), the least time after which the first l layers are reduced.
AllReducePlan mg_opt(const AllReduceProblem& p) {
  const std::size_t layers = p.layers.size();
  std::vector<double> best(layers + 1, std::numeric_limits<double>::infinity()), ready(layers + 1, 0);
  std::vector<std::size_t> from(layers + 1, 0);
  best[0] = 0;
  for (std::size_t l = 1; l <= layers; ++l) {
    ready[l] = ready[l - 1] + p.layers[l - 1].compute_ms;
    double bytes = 0;
    for (std::size_t first = l; first-- > 0;) {
      bytes += p.layers[first].gradient_bytes;
      const double ms = std::max(ready[l], best[first]) + p.costs.overlapped_ms(bytes, p.baseline(bytes));
      if (ms < best[l]) best[l] = ms, from[l] = first;
    }
  }
  std::vector<bool> ends(layers + 1, false);
  for (std::size_t l = layers; l > 0; l = from[l]) ends[l] = true;
  return predicted(p, grouped(p, [&](std::size_t l, double, std::size_t) { return ends[l + 1]; }));
}

AllReducePlan mg_cf(const AllReduceProblem& p) {
  AllReduceProblem free = p;
  free.baseline = [&](double bytes) {
    ThreadRates rates = p.baseline(bytes);
    rates.compute_rate = 1;
    rates.overlapped = rates.alone;
    return rates;
  };
  return mg_wfbp(free);
}

AllReducePlan planned(const AllReduceProblem& p, LibraPlan plan) {
  AllReducePlan result = predicted(p, std::move(plan.groups));
  result.grid_ms = plan.grid_ms;
  return result;
}

AllReducePlan libra_m(const AllReduceProblem& p) {
  return planned(p, plan_threads(p.layers, merged_gradients(p), p.costs, p.limits.chunks));
}

AllReducePlan libra(const AllReduceProblem& p) {
  AllReducePlan best = planned(p, plan_libra(p.layers, p.costs, p.limits)), other = libra_m(p);
  if (std::ssize(other.groups) <= p.limits.groups &&
      other.predicted.backward_ms < best.predicted.backward_ms) {
    other.grid_ms = best.grid_ms;
    return other;
  }
  return best;
}

}  // namespace

const std::vector<AllReducePolicy>& all_reduce_policies() {
  static const std::vector<AllReducePolicy> policies{
      {"se", "all gradients at once, after backward (SynEASGD)", false, se},
      {"wfbp", "each gradient by itself, as soon as it is computed", false, wfbp},
      {"ddp", "buckets of 1 MiB, then 25 MiB, as in PyTorch", false, ddp},
      {"horovod", "what is computed at each 5 ms tick, up to 64 MiB together (0.20.3)", true, horovod},
      {"mg-wfbp", "waits for gradients that come before an all-reduce has started up (MG-WFBP)", true,
       mg_wfbp},
      {"mg-opt", "the optimum of MG-WFBP's model", true, mg_opt},
      {"mg-cf", "mg-wfbp if nothing slowed anything down; only simulated", true, mg_cf},
      {"libra-m", "the groups of mg-wfbp, with the threads that LIBRA chooses", true, libra_m},
      {"libra", "chooses the groups and the threads", true, libra}};
  return policies;
}

const AllReducePolicy& all_reduce_policy(std::string_view name) {
  return engine::row_named(name, all_reduce_policies(), "policy");
}

int ThreadTable::at(double bytes) const {
  const auto row = std::ranges::find_if(rows, [&](const Row& r) { return bytes <= r.most_bytes; });
  return row == rows.end() ? threads : row->threads;
}

ThreadTable nccl_threads(int ranks) {
  return {{{512.0 * ranks, 64}, {1024.0 * ranks, 128}, {2048.0 * ranks, 256}}, 512};
}

constexpr double kNoTime = 100;  // times the rate alone: more than noise, and than any link

std::vector<std::string> violated_assumptions(const AllReduceProblem& p, double tolerance) {
  double bytes = 0;
  for (const GradientLayer& l : p.layers) bytes += l.gradient_bytes;
  std::vector<std::string> lines;
  for (const ThreadRates& r : p.costs.choices) {
    if (r.overlapped > r.alone * (1 + tolerance))
      lines.push_back(
          fmt::format("with {} an all-reduce is faster beside computation ({}) than alone "
                      "({:.3g} GB/s)",
                      counted(r.threads, "thread"),
                      r.overlapped > kNoTime * r.alone ? "where its bytes seem to take no time"
                                                       : fmt::format("{:.3g} GB/s", r.overlapped / 1e6),
                      r.alone / 1e6));
    const double beside = p.costs.overlapped_ms(bytes, r), alone = p.costs.alone_ms(bytes, r);
    if (beside > (r.compute_rate * beside + alone) * (1 + tolerance))
      lines.push_back(
          fmt::format("with {} an all-reduce and a computation take longer beside each other "
                      "({:.6g} ms) than one after the other ({:.6g} ms)",
                      counted(r.threads, "thread"), beside, r.compute_rate * beside + alone));
  }
  return lines;
}

}  // namespace tandem
