#include <tandem/pipeline/partition_costs.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include <fmt/format.h>

#include <tandem/core/base/error.h>

namespace tandem::engine {
namespace {

void check(const PipelineLayer& layer) {
  const std::pair<const char*, double> numbers[] = {
      {"seconds of forward", layer.forward},         {"seconds of backward", layer.backward},
      {"bytes of activations", layer.forward_bytes}, {"bytes of gradients", layer.backward_bytes},
      {"resident bytes", layer.resident_bytes},      {"bytes of weights", layer.weight_bytes},
      {"shared bytes", layer.shared_bytes}};
  for (const auto& [what, number] : numbers)
    if (!std::isfinite(number) || number < 0)
      throw Error(
          fmt::format("layer '{}' has {} {}: it must be finite, and 0 or more", layer.name, number, what));
}

void check(const PartitionProblem& p) {
  check(p.schedule);
  require_sound(p.link);
  if (!(p.corun >= 0.5 && p.corun <= 1))
    throw Error(
        fmt::format("a corun factor of {}: it is from 0.5 (two computations beside each other are as "
                    "fast as one) to 1 (they gain nothing)",
                    p.corun));
  require_not_negative("memory budget", p.memory_budget);
  require_not_negative("optimizer copies", p.optimizer_copies);
  for (const PipelineLayer& layer : p.layers) check(layer);
  if (p.layers.size() < p.schedule.stages.size())
    throw Error(fmt::format("{} cannot have {} of a pipeline: each stage takes one or more",
                            counted(std::ssize(p.layers), "layer"),
                            counted(std::ssize(p.schedule.stages), "stage")));
  if (p.spare_devices < 0)
    throw Error(fmt::format("{} spare devices: there must be 0 or more", p.spare_devices));
  if (p.spare_devices > 0 && p.schedule.devices() < std::ssize(p.schedule.stages))
    throw Error("replicas of stages: a schedule with several stages on one device takes none");
}

}  // namespace

PartitionCosts::PartitionCosts(const PartitionProblem& problem) : problem_(problem) {
  check(problem);
  const PipelineSchedule& s = problem.schedule;
  microbatches_ = s.microbatches();
  overlaps_batches_ = s.overlaps_batches();
  for (int k = 0; k < static_cast<int>(s.stages.size()); ++k) {
    const auto at = static_cast<std::size_t>(k);
    rules_.push_back({stage_timing(s, k), held_activations(s, k), weight_versions(s, k),
                      predicted_weights(s, k), crossing_slots(s, k),
                      k > 0 && s.stages[at].device != s.stages[at - 1].device});
    stages_of_device_ = std::max<double>(stages_of_device_, rules_.back().timing.stages_of_device);
  }
  before_.resize(1);
  for (const PipelineLayer& layer : problem.layers) {
    const Sums& sum = before_.back();
    before_.push_back({sum.forward + layer.forward, sum.backward + layer.backward,
                       sum.resident + layer.resident_bytes, sum.weights + layer.weight_bytes});
  }
  for (int n = 1; n <= parts(problem.spare_devices + 1); ++n) largest_.push_back(largest_of(n));
}

PartitionCosts::Largest PartitionCosts::largest_of(int parts) const {
  Largest largest(1);
  for (const PipelineLayer& layer : problem_.layers)
    largest[0].push_back(crossing_bytes(layer) / parts + (microbatches_ > 1 ? layer.weight_bytes : 0));
  for (std::size_t half = 1; 2 * half <= problem_.layers.size(); half *= 2) {
    const std::vector<double>& shorter = largest.back();
    std::vector<double> longer;
    for (std::size_t i = 0; i + half < shorter.size(); ++i)
      longer.push_back(std::max(shorter[i], shorter[i + half]));
    largest.push_back(std::move(longer));
  }
  return largest;
}

// Of a micro-batch, behind a layer, there and back.
double PartitionCosts::crossing_bytes(const PipelineLayer& layer) const {
  return (layer.forward_bytes + layer.backward_bytes) / microbatches_;
}

// The largest value over layers: two ranges of 2ʲ layers cover every range. What goes on from the last layer
// crosses a cut.
double PartitionCosts::largest_transient(int first, int end, int parts) const {
  const int last = end - 1;
  const double gradient =
      microbatches_ > 1 ? problem_.layers[static_cast<std::size_t>(last)].weight_bytes : 0;
  if (first == last) return gradient;
  const auto level = static_cast<std::size_t>(std::bit_width(static_cast<unsigned>(last - first)) - 1);
  const std::vector<double>& largest = largest_[static_cast<std::size_t>(parts - 1)][level];
  return std::max({gradient, largest[static_cast<std::size_t>(first)],
                   largest[static_cast<std::size_t>(last - (1 << level))]});
}

PartitionCosts::Sums PartitionCosts::sums(int first, int end) const {
  const Sums &b = before_[static_cast<std::size_t>(first)], &e = before_[static_cast<std::size_t>(end)];
  const double shared = first < layers() ? problem_.layers[static_cast<std::size_t>(first)].shared_bytes : 0;
  return {e.forward - b.forward, e.backward - b.backward, e.resident - b.resident + shared,
          e.weights - b.weights};
}

// 4(r − 1)|w|/r over the bandwidth, as PipeDream counts it.
double PartitionCosts::all_reduce(double weight_bytes, int replicas) const {
  return all_reduce_seconds(problem_.link, 2 * weight_bytes, replicas);
}

double PartitionCosts::unit(int k, int first, int end, int replicas) const {
  const Sums sum = sums(first, end);
  const double alone =
      rules_[static_cast<std::size_t>(k)].timing.unit_seconds(sum.forward, sum.backward, problem_.corun);
  if (replicas == 1) return alone;
  const double reduced = all_reduce(sum.weights, replicas);
  return overlaps_batches_ ? std::max(alone, reduced) / replicas : std::max(alone / replicas, reduced);
}

double PartitionCosts::link_unit(int k, int first, int replicas) const {
  const Rule& rule = rules_[static_cast<std::size_t>(k)];
  if (!rule.has_link) return 0;
  const PipelineLayer& layer = problem_.layers[static_cast<std::size_t>(first - 1)];
  const double message = std::max(layer.forward_bytes, layer.backward_bytes) / microbatches_;
  const double transfers = microbatches_ * transfer_seconds(problem_.link, message / parts(replicas));
  return stages_of_device_ * transfers / (overlaps_batches_ ? replicas : 1);
}

double PartitionCosts::pace(int k, int first, int end, int replicas) const {
  return std::max(unit(k, first, end, replicas), link_unit(k, first, replicas));
}

// Bytes of so many values and gradients that cross the cut behind a layer.
double PartitionCosts::crossing_at(double values, double gradients, int layer, int parts) const {
  const PipelineLayer& l = problem_.layers[static_cast<std::size_t>(layer)];
  return (values * l.forward_bytes + gradients * l.backward_bytes) / parts;
}

// Bytes without what crosses the cut behind the stage. Grows with `end`.
double PartitionCosts::kept(int k, int first, int end, int replicas) const {
  const Rule& rule = rules_[static_cast<std::size_t>(k)];
  const Sums sum = sums(first, end);
  const CrossingSlots& slots = rule.crossing;
  const double crossing =
      first > 0 ? crossing_at(slots.received_values, slots.sent_gradients, first - 1, parts(replicas)) : 0;
  return crossing + largest_transient(first, end, parts(replicas)) +
         sum.resident *
             held_batches(rule.held, static_cast<int>(microbatches_), replicas, overlaps_batches_) +
         sum.weights * (rule.versions + 1 + problem_.optimizer_copies + rule.predicted);
}

double PartitionCosts::memory(int k, int first, int end, int replicas) const {
  const CrossingSlots& slots = rules_[static_cast<std::size_t>(k)].crossing;
  return kept(k, first, end, replicas) +
         crossing_at(slots.sent_values, slots.received_gradients, end - 1, parts(replicas));
}

double PartitionCosts::least_budget(int k, int first, int end, int replicas) const {
  return memory(k, first, end, replicas) * rules_[static_cast<std::size_t>(k)].timing.stages_of_device;
}

double PartitionCosts::least_budget_from(int k, int first, int end, int replicas) const {
  return kept(k, first, end, replicas) * rules_[static_cast<std::size_t>(k)].timing.stages_of_device;
}

// Seconds of a micro-batch's transfers across the cut behind a stage, there and back.
double PartitionCosts::crossing(int k, int end) const {
  if (k + 1 == stages() || !rules_[static_cast<std::size_t>(k) + 1].has_link) return 0;
  const PipelineLayer& layer = problem_.layers[static_cast<std::size_t>(end) - 1];
  return transfer_seconds(problem_.link, layer.forward_bytes / microbatches_) +
         transfer_seconds(problem_.link, layer.backward_bytes / microbatches_);
}

PartitionCosts::Terms PartitionCosts::terms(int k, int first, int end, int replicas) const {
  const Rule& rule = rules_[static_cast<std::size_t>(k)];
  const Sums stage = sums(first, end), rest = sums(end, layers());
  Terms t{.k = k, .own = unit(k, first, end, replicas)};
  t.pace = std::max(t.own, link_unit(k, first, replicas));
  t.alone = (stage.forward + stage.backward) / microbatches_;
  const double parts = rule.timing.microbatches_of_tick * (rule.timing.overlaps ? 2 : 1) / microbatches_;
  t.computed = flushes() ? t.alone / replicas : t.own * parts;
  t.crossed = crossing(k, end);
  t.rest = (rest.forward + rest.backward) / microbatches_;
  const bool is_last = k + 1 == stages();
  const int more = is_last ? 0 : rule.held - rules_[static_cast<std::size_t>(k) + 1].held;
  t.ahead = more * (stage.forward / microbatches_ / replicas);
  return t;
}

StagesCost PartitionCosts::before(const Terms& t, const StagesCost& later) const {
  const Rule& rule = rules_[static_cast<std::size_t>(t.k)];
  const double turns = rule.timing.stages_of_device;
  // From the end of a micro-batch's forward here to the begin of its backward.
  const double away = t.rest + (t.crossed + later.extra);
  StagesCost cost{.extra = (t.computed - t.alone) + t.crossed + later.extra};
  cost.period = std::max({later.period, t.pace, microbatches_ * (t.computed + away) / rule.held});
  if (!flushes()) return cost;
  const double wait = t.k + 1 < stages() ? std::max(0.0, away / turns - t.ahead) : 0;
  cost.period = std::max({cost.period, t.own + wait, later.period + (t.computed + t.crossed) / turns});
  return cost;
}

double PartitionCosts::least_before(int first) const {
  if (overlaps_batches_) return 0;
  const Sums earlier = sums(0, first);
  const double replicas = problem_.spare_devices + 1;  // at most
  return (earlier.forward + earlier.backward) / microbatches_ / stages_of_device_ / replicas;
}

PartitionedStage PartitionCosts::stage(int k, int first, int end, int replicas) const {
  const Rule& rule = rules_[static_cast<std::size_t>(k)];
  const Sums sum = sums(first, end);
  PartitionedStage stage{.first = first,
                         .end = end,
                         .device = problem_.schedule.stages[static_cast<std::size_t>(k)].device,
                         .replicas = replicas,
                         .forward = sum.forward,
                         .backward = sum.backward,
                         .unit = pace(k, first, end, replicas),
                         .resident_bytes = sum.resident,
                         .weight_bytes = sum.weights,
                         .memory_bytes = memory(k, first, end, replicas),
                         .held = rule.held,
                         .versions = rule.versions};
  if (k + 1 < stages()) {
    const PipelineLayer& last = problem_.layers[static_cast<std::size_t>(end) - 1];
    stage.forward_bytes = last.forward_bytes;
    stage.backward_bytes = last.backward_bytes;
  }
  return stage;
}

}  // namespace tandem::engine
