#include "mu_two_systems.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "claims.h"

namespace tandem::apps {
namespace {

using Kind = Figure::Kind;
constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr double kGb = 1e9, kMsPerHour = 3.6e6, kIterations = 10'000;

double ratio(const MuTwoOutcome& than, const MuTwoOutcome& system) {
  return than.possible && system.possible ? than.ms / system.ms : kNone;
}

bool is_one_array(const MuTwoOutcome& o, int models) {
  return o.possible && o.arrays == fmt::format("({})", models);
}

bool fits_without_plan(const SystemOutcomes& o) {
  return !o.models.empty() && is_one_array(o.hfta.back(), o.models.back()) &&
         is_one_array(o.mu_two.back(), o.models.back());
}

// The networks that the paper takes apart.
std::vector<const SystemOutcomes*> of_bert_and_vit(const std::vector<SystemOutcomes>& all) {
  std::vector<const SystemOutcomes*> some;
  for (const SystemOutcomes& o : all)
    if (o.is_on_a100() && (o.network.network == "bert_base" || o.network.network == "vit_60m"))
      some.push_back(&o);
  return some;
}

// Which cases need no plan, so that nothing is swapped or computed again in them.
std::string text_about_fits(const std::vector<SystemOutcomes>& all) {
  std::vector<std::string> titles;
  int models = 0;
  for (const SystemOutcomes& o : all)
    if (fits_without_plan(o)) titles.push_back(fmt::format("{} ({} samples)", o.title(), o.network.samples));
  for (const SystemOutcomes& o : all)
    if (!o.models.empty()) models = std::max(models, o.models.back());
  if (titles.empty()) return "";
  return fmt::format(" All {} models fit without a plan, so that every system trains the same array: {}.",
                     models, fmt::join(titles, "; "));
}

std::string text_about_hosts(const std::vector<SystemOutcomes>& all) {
  std::map<std::string, std::pair<std::int64_t, std::int64_t>> hosts;  // by device: the most bytes, and all
  for (const SystemOutcomes& o : all)
    for (const MuTwoOutcome& x : o.mu_two) {
      if (!x.possible) continue;
      auto& [bytes, limit] = hosts[o.device.name];
      bytes = std::max(bytes, x.host_bytes);
      limit = o.device.host_bytes;
    }
  std::string text;
  for (const auto& [device, host] : hosts)
    text += fmt::format(
        " What μ-TWO swaps, and models that wait for their turn, take {:.1f} GB at most of the {:.0f} GB on the "
        "host of the {}.",
        static_cast<double>(host.first) / kGb, static_cast<double>(host.second) / kGb, device);
  return text;
}

// The largest speedup of μ-TWO over HFTA with the batches of Table 1, or with ours. Where HFTA trains several
// arrays in turn, its utilization says how much faster any system could be.
void claim_speedup(const std::vector<SystemOutcomes>& all, bool ours, std::vector<Claim>& claims) {
  double best = 0;
  std::vector<double> used;
  for (const SystemOutcomes& o : all) {
    if (o.network.is_ours != ours) continue;
    for (std::size_t i = 0; i < o.models.size(); ++i) {
      const double speedup = ratio(o.hfta[i], o.mu_two[i]);
      if (speedup > best) best = speedup;
      if (o.hfta[i].possible && !is_one_array(o.hfta[i], o.models[i]))
        used.push_back(o.hfta[i].utilization());
    }
  }
  if (best == 0) return;
  std::string why = "all models fit without a plan";
  if (!used.empty()) {
    const Range r = range_of(used);
    why = fmt::format(
        "where the models do not fit at once, HFTA's arrays use {:.1f} to {:.1f} % of the device already. So no "
        "larger array can be more than {:.2f} times as fast by this model of kernels, whatever is swapped. The paper's "
        "kernels leave half of the device idle, for reasons that a roofline does not have",
        100 * r.least, 100 * r.most, 1 / r.least);
  }
  Claim c = ratio_claim(
      fmt::format("the largest speedup over HFTA, {}", ours ? "batches of ours" : "batches of Table 1"), 3,
      best, why);
  c.ours = fmt::format("×{:.3f}", best);  // close to 1
  claims.push_back(std::move(c));
}

// Whether μ-TWO is behind another system, with any network, device, or number of models.
void claim_over(const std::vector<SystemOutcomes>& all, const char* other,
                std::vector<MuTwoOutcome> SystemOutcomes::*outcomes, const std::string& why,
                std::vector<Claim>& claims) {
  std::vector<double> ratios;
  int alone = 0;  // cases in which the other system has no plan
  for (const SystemOutcomes& o : all)
    for (std::size_t i = 0; i < o.models.size(); ++i) {
      const MuTwoOutcome& than = (o.*outcomes)[i];
      if (const double over = ratio(than, o.mu_two[i]); !std::isnan(over)) ratios.push_back(over);
      alone += o.mu_two[i].possible && !than.possible ? 1 : 0;
    }
  if (ratios.empty()) return;
  const Range r = range_of(ratios);
  claims.push_back(
      claim(fmt::format("μ-TWO is never behind {}", other), "in all cases", r.least >= 1 - 1e-9,
            fmt::format("{:.3f} to {:.3f} times as fast; in {} more cases, only μ-TWO has a plan", r.least,
                        r.most, alone),
            why));
}

}  // namespace

Figure speedup_figure(const std::vector<SystemOutcomes>& all, std::vector<Claim>& claims) {
  Figure figure{
      "fig8",
      "Fig. 8: speedup over HFTA",
      "Time of HFTA's arrays in turn over that of each system, for a batch of every model. No value: the "
      "system has no plan that fits." +
          text_about_fits(all) + text_about_hosts(all),
      Kind::lines,
      "network",
      "models",
      "system",
      "speedup",
      {}};
  for (const SystemOutcomes& o : all) {
    Panel panel{o.title(), {}, {{"HFTA", {}}, {"HFTA-Capuchin", {}}, {"μ-TWO", {}}, {"μ-TWO, greedy", {}}}};
    for (std::size_t i = 0; i < o.models.size(); ++i) {
      panel.places.push_back(std::to_string(o.models[i]));
      int system = 0;
      for (const auto* outcomes : {&o.hfta, &o.capuchin, &o.mu_two, &o.greedy})
        panel.series[system++].values.push_back(ratio(o.hfta[i], (*outcomes)[i]));
    }
    figure.panels.push_back(std::move(panel));
  }
  for (const bool ours : {false, true}) claim_speedup(all, ours, claims);
  claim_over(all, "HFTA", &SystemOutcomes::hfta,
             "HFTA's largest array may have a size that no pair has; and with MobileNetV3's larger batch a "
             "model takes longer in an array than alone, since some pointwise ops are no longer fused",
             claims);
  claim_over(all, "HFTA-Capuchin", &SystemOutcomes::capuchin, "", claims);
  return figure;
}

Figure hours_figure(const std::vector<SystemOutcomes>& all, std::vector<Claim>& claims) {
  Figure figure{"fig7",
                "Fig. 7: hours of 10,000 iterations",
                "BERT and ViT on the A100, all models together.",
                Kind::bars,
                "network",
                "models",
                "system",
                "hours",
                {}};
  const auto hours_of = [](const MuTwoOutcome& o) {
    return o.possible ? o.ms * kIterations / kMsPerHour : kNone;
  };
  std::vector<double> saved;
  for (const SystemOutcomes* o : of_bert_and_vit(all)) {
    Panel panel{o->title(), {}, {{"HFTA", {}}, {"μ-TWO", {}}}};
    for (std::size_t i = 0; i < o->models.size(); ++i) {
      const double hfta = hours_of(o->hfta[i]), mu_two = hours_of(o->mu_two[i]);
      panel.places.push_back(std::to_string(o->models[i]));
      panel.series[0].values.push_back(hfta);
      panel.series[1].values.push_back(mu_two);
      if (!std::isnan(hfta - mu_two)) saved.push_back(hfta - mu_two);
    }
    figure.panels.push_back(std::move(panel));
  }
  if (!saved.empty()) {
    const Range hours = range_of(saved);
    claims.push_back({"hours that μ-TWO saves over HFTA in 10,000 iterations", "5 to 40",
                      fmt::format("{:.2f} to {:.2f}", hours.least, hours.most), compared({5, 40}, hours),
                      "as for the largest speedup: HFTA's arrays leave little of the device idle"});
  }
  return figure;
}

namespace {

// The share of the time of copies in which the device computes.
double hidden_share(const MuTwoOutcome& o) {
  return o.possible && o.swap_ms > 0 ? std::max(0.0, 1 - o.stall_ms / o.swap_ms) : kNone;
}
double recomputed_share(const MuTwoOutcome& o) { return o.possible ? o.recompute_ms / o.ms : kNone; }

using Value = std::function<double(const SystemOutcomes&, const MuTwoOutcome&)>;

// A figure with a panel for each network, and the bars of two systems.
Figure two_systems(Figure figure, const std::vector<const SystemOutcomes*>& all, const char* first,
                   std::vector<MuTwoOutcome> SystemOutcomes::*outcomes, const Value& value) {
  for (const SystemOutcomes* o : all) {
    Panel panel{o->title(), {}, {{first, {}}, {"μ-TWO", {}}}};
    for (std::size_t i = 0; i < o->models.size(); ++i) {
      panel.places.push_back(std::to_string(o->models[i]));
      panel.series[0].values.push_back(value(*o, (o->*outcomes)[i]));
      panel.series[1].values.push_back(value(*o, o->mu_two[i]));
    }
    figure.panels.push_back(std::move(panel));
  }
  return figure;
}

// Values of μ-TWO over those of HFTA-Capuchin, where both have one.
std::vector<double> ratios_of(const std::vector<const SystemOutcomes*>& all,
                              double (*value)(const MuTwoOutcome&)) {
  std::vector<double> ratios;
  for (const SystemOutcomes* o : all)
    for (std::size_t i = 0; i < o->models.size(); ++i) {
      const double ours = value(o->mu_two[i]), than = value(o->capuchin[i]);
      if (than > 0 && !std::isnan(ours)) ratios.push_back(ours / than);
    }
  return ratios;
}

void claim_breakdown(const std::vector<const SystemOutcomes*>& all, std::vector<Claim>& claims) {
  double most = 0;
  for (const SystemOutcomes* o : all)
    for (const MuTwoOutcome& x : o->capuchin)
      if (x.possible) most = std::max(most, recomputed_share(x));
  if (const std::vector<double> again = ratios_of(all, recomputed_share); !again.empty())
    claims.push_back(
        claim("share of recomputation, over that of HFTA-Capuchin", "less than half", mean(again) < 0.5,
              fmt::format("{:.2f} on average of {} cases; that of HFTA-Capuchin is {:.1f} % at most",
                          mean(again), again.size(), 100 * most),
              "where a copy would wait, the plan computes again if that is cheaper"));
  if (const std::vector<double> hidden = ratios_of(all, hidden_share); !hidden.empty())
    claims.push_back(claim("hidden share of copies, over that of HFTA-Capuchin", "2 to 3 times",
                           mean(hidden) >= 2,
                           fmt::format("{:.2f} times on average of {} cases", mean(hidden), hidden.size()),
                           "Capuchin's copies here stall only where they cost less than computing again, so "
                           "most of theirs are hidden too"));
}

}  // namespace

std::vector<Figure> breakdown_figures(const std::vector<SystemOutcomes>& all, std::vector<Claim>& claims) {
  const std::vector<const SystemOutcomes*> some = of_bert_and_vit(all);
  const auto figure = [](const char* id, const char* title, const char* text, const char* value) {
    return Figure{id, title, text, Kind::bars, "network", "models", "system", value, {}};
  };
  claim_breakdown(some, claims);
  const auto compute_ms = [](const SystemOutcomes&, const MuTwoOutcome& o) {
    return o.possible ? o.compute_ms : kNone;
  };
  const auto recomputed = [](const SystemOutcomes&, const MuTwoOutcome& o) { return recomputed_share(o); };
  const auto hidden = [](const SystemOutcomes&, const MuTwoOutcome& o) { return hidden_share(o); };
  const auto wanted = [](const SystemOutcomes& of, const MuTwoOutcome& o) {
    return static_cast<double>(o.wanted_bytes) / static_cast<double>(of.device.bytes);
  };
  const char* capuchin = "HFTA-Capuchin";
  return {
      two_systems(figure("fig9a", "Fig. 9a: useful computation",
                         "BERT and ViT on the A100, without what is computed again and waits.", "ms"),
                  some, "HFTA", &SystemOutcomes::hfta, compute_ms),
      two_systems(figure("fig9b", "Fig. 9b: share of the time that is spent computing again",
                         "BERT and ViT on the A100.", "share"),
                  some, capuchin, &SystemOutcomes::capuchin, recomputed),
      two_systems(figure("fig9c", "Fig. 9c: share of the time of copies that computation hides",
                         "BERT and ViT on the A100. No value: the system copies nothing.", "share"),
                  some, capuchin, &SystemOutcomes::capuchin, hidden),
      two_systems(figure("fig9d", "Fig. 9d: peak without a plan, over the device's memory",
                         "Of all models in one array (HFTA-Capuchin), and of μ-TWO's largest array or pair.",
                         "ratio"),
                  some, capuchin, &SystemOutcomes::capuchin, wanted)};
}

}  // namespace tandem::apps
