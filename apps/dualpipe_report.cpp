#include "dualpipe_report.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tandem/core/base/error.h>
#include <tandem/core/base/named.h>

#include "decimal.h"
#include "dualpipe_run.h"
#include "log.h"

namespace tandem::apps {
namespace {

constexpr std::int64_t kLeastIterations = 4;

// Some figures that are made together.
struct Part {
  std::vector<std::string> figures;
  const char* words;
  void (*add)(const DualPipeRun& run, Report& report);
  bool (*takes)(const DualPipeRun& run, const DualPipeNetwork& network) = nullptr;  // null: it uses none
  const char* network = nullptr;  // of a part that is made only by name: the one that it takes by default
};

bool is_measured(const DualPipeRun&, const DualPipeNetwork& n) { return n.measured; }
bool is_predicted(const DualPipeRun&, const DualPipeNetwork& n) { return n.name == "snn"; }
bool is_trained(const DualPipeRun& run, const DualPipeNetwork& n) {
  return run.paper ? n.in_paper : bool(n.small);
}

const std::vector<Part>& parts() {
  static const std::vector<Part> all{
      {{"fig6", "fig8"}, "schedules", add_schedules},
      {{"fig10", "fig11"}, "profiles fitted to the paper", add_families},
      {{"fig3"}, "transfers", add_transfers, is_measured},
      {{"fig4", "fig7", "fig10-measured", "fig11-measured"},
       "profiles measured here",
       add_measured,
       is_measured},
      {{"fig9"}, "predictions", add_prediction, is_predicted},
      {{"fig5", "fig12", "fig13", "table1"}, "training", add_training, is_trained},
      {{"rates"}, "accuracy by rate", add_rates, is_trained, "mlp-residual"},
  };
  return all;
}

std::set<std::string> selected(const std::string& flag, const std::string& list,
                               const std::vector<std::string>& known) {
  if (list.empty()) return {known.begin(), known.end()};
  std::set<std::string> names;
  for (const std::string& name : parts_of(list)) {
    if (std::ranges::find(known, name) == known.end())
      throw Error(fmt::format("{} '{}': choose among {}", flag, name, fmt::join(known, ", ")));
    names.insert(name);
  }
  return names;
}

std::vector<std::string> figure_names() {
  std::vector<std::string> names;
  for (const Part& part : parts()) names.insert(names.end(), part.figures.begin(), part.figures.end());
  return names;
}

DualPipeRun run_of(const DualPipeOptions& o) {
  if (o.scale != "small" && o.scale != "paper")
    throw Error(fmt::format("--scale '{}': choose small or paper", o.scale));
  if (o.iterations < 0 || o.batch_size < 0 || o.seeds < 0)
    throw Error("--iterations, --batch-size and --seeds must be 0 or more");
  if (o.iterations > 0 && o.iterations < kLeastIterations)
    throw Error(fmt::format(
        "--iterations {}: must be 0, or at least {}, since Fig. 9 compares weights that are three "
        "updates apart",
        o.iterations, kLeastIterations));
  DualPipeRun run{.paper = o.scale == "paper", .data = o.data, .batch_size = o.batch_size};
  run.iterations = o.iterations > 0 ? o.iterations : run.paper ? 5000 : 1000;
  run.prediction_iterations = o.iterations > 0 ? o.iterations : run.paper ? 5000 : 100;
  run.seeds = o.seeds > 0 ? o.seeds : run.paper ? 1 : 3;
  std::vector<DualPipeNetwork> networks = dualpipe_networks();
  if (!o.rates.empty()) run.rates = decimals<double>(o.rates);
  if (std::ranges::any_of(run.rates, [](double factor) { return factor <= 0; }))
    throw Error(fmt::format("--rates {}: must be above 0", o.rates));
  const std::vector<std::string> rules(kSgdRules.begin(), kSgdRules.end());
  for (const std::string& rule : rules)
    if (selected("--sgd-rules", o.sgd_rules, rules).contains(rule)) run.sgd_rules.push_back(rule);
  const std::set<std::string> wanted = selected("--networks", o.networks, engine::names_of(networks));
  for (DualPipeNetwork& network : networks)
    if (wanted.contains(network.name) && (network.in_paper || !o.networks.empty()))
      run.networks.push_back(std::move(network));
  return run;
}

std::vector<const Part*> selected_parts(const std::string& only) {
  const std::set<std::string> wanted = selected("--only", only, figure_names());
  std::vector<const Part*> result;
  for (const Part& part : parts())
    if (!(part.network && only.empty()) &&
        std::ranges::any_of(part.figures, [&](const auto& name) { return wanted.contains(name); }))
      result.push_back(&part);
  return result;
}

std::vector<DualPipeNetwork> taken(const Part& part, const DualPipeRun& run,
                                   std::vector<DualPipeNetwork> networks) {
  std::erase_if(networks, [&](const DualPipeNetwork& n) { return !part.takes || !part.takes(run, n); });
  return networks;
}

// What the run computes, with the networks of each part, and what it leaves out.
struct Plan {
  std::vector<std::pair<const Part*, DualPipeRun>> parts;
  std::vector<std::string> left_out;  // sentences
};

Plan plan_of(const DualPipeOptions& options, const DualPipeRun& run) {
  Plan plan;
  std::set<std::string> used;
  for (const Part* part : selected_parts(options.only)) {
    DualPipeRun own = run;
    const bool chooses = part->network && options.networks.empty();
    own.networks = taken(*part, run, chooses ? dualpipe_networks() : run.networks);
    if (chooses) std::erase_if(own.networks, [&](const auto& n) { return n.name != part->network; });
    for (const std::string& name : engine::names_of(own.networks)) used.insert(name);
    if (part->takes && own.networks.empty())
      plan.left_out.push_back(
          fmt::format("{} ({}): none of --networks {}; takes {}", fmt::join(part->figures, ", "), part->words,
                      fmt::join(engine::names_of(run.networks), ","),
                      fmt::join(engine::names_of(taken(*part, run, dualpipe_networks())), ", ")));
    else
      plan.parts.emplace_back(part, std::move(own));
  }
  if (plan.parts.empty()) throw Error(fmt::format("nothing to compute: {}", fmt::join(plan.left_out, "; ")));
  for (const std::string& name : engine::names_of(run.networks))
    if (!options.networks.empty() && !used.contains(name))
      plan.left_out.push_back(fmt::format("--networks {}: no selected figure takes it", name));
  return plan;
}

std::vector<std::string> introduction(const DualPipeRun& run) {
  return {
      "The paper: C.-C. Chen, C.-L. Yang, H.-Y. Cheng, Efficient and Robust Parallel DNN Training through Model "
      "Parallelism on Multi-GPU Platform, 2018. Its DualPipe is not the schedule that DeepSeek gave the same name "
      "later. This page was written by tandem reproduce dualpipe --scale " +
          std::string(run.paper ? "paper." : "small."),
      "Schedules are drawn, and throughput is computed, by tandem sim pipeline's simulator, in lockstep units as in "
      "the paper. There are two kinds of profiles: fitted ones have the paper's own averages as parameters (fitted, "
      "in the table); measured ones are of kernels on this machine. Accuracy is that of networks which were trained "
      "here, on pipelines of threads. Averages of ratios over networks are geometric, as in the paper.",
      "Data P. is data parallelism. Vanilla DualPipe uses whatever weights a stage has. PipeDream is Tandem's "
      "pipedream: F and B of a batch use the same weights per stage. SpecTrain is DualPipe with predicted weights; "
      "in figures of throughput it is called DualPipe. Its target is the paper's, and its optimizer is SGD with "
      "TensorFlow's momentum, 0.9.",
      "The paper's gain rests on lockstep units: run freely, with equal stages, free transfers and ρ = 1, PipeDream "
      "is as fast as DualPipe (tandem sim pipeline --schedule pipedream-async,dualpipe).",
      "Networks of images train on drawn images, or on those of --data; the Transformer and the Residual LSTM on drawn "
      "texts of 20 words in two classes.",
      "A result agrees if it is inside the paper's range, or within a tenth of its ends. It overlaps if a part of "
      "it is. Otherwise it has the same direction, or it differs. It is given if the paper's number is an input, and not "
      "examined if there is nothing of it here."};
}

}  // namespace

std::string dualpipe_scale_help() {
  return "small: sizes for an hour on two cores; paper: the paper's sizes, 5,000 iterations, for days";
}

std::string dualpipe_figure_help() {
  return fmt::format("{}; rates only by name", fmt::join(figure_names(), ", "));
}

std::vector<std::string> dualpipe_figures(const DualPipeOptions& options) {
  std::vector<std::string> names;
  for (const Part* part : selected_parts(options.only))
    names.insert(names.end(), part->figures.begin(), part->figures.end());
  return names;
}

Report dualpipe_report(const DualPipeOptions& options, const SaveReport& save) {
  const DualPipeRun run = run_of(options);
  const Plan plan = plan_of(options, run);
  Report report{.title = "DualPipe and SpecTrain, reproduced", .introduction = introduction(run)};
  for (const std::string& what : plan.left_out) {
    report.introduction.push_back(fmt::format("Left out: {}.", what));
    log_error(fmt::format("left out: {}", what));
  }
  save(report);
  for (const auto& [part, of_part] : plan.parts) {
    log_info(fmt::format("computes {}", part->words));
    const auto begin = std::chrono::steady_clock::now();
    part->add(of_part, report);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    log_info(fmt::format("{}: {:.0f} s", part->words, took.count()));
    save(report);
  }
  return report;
}

}  // namespace tandem::apps
