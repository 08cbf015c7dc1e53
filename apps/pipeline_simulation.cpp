#include "pipeline_simulation.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <tuple>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <tandem/core/base/error.h>
#include <tandem/dist/link.h>
#include <tandem/pipeline/schedules.h>
#include <tandem/plan/pipeline_simulation.h>

#include "decimal.h"
#include "output_file.h"

namespace tandem::apps {
using namespace engine;
namespace {

using nlohmann::ordered_json;
constexpr std::string_view kAsynchronous = "-async";
constexpr int kColumns = 96;
constexpr std::int64_t kMostBatches = 1'000'000;

// A row of the result: a simulated schedule, or a formula for devices that train the whole network.
struct Row {
  std::string name;
  PipelineSchedule schedule{};
  PipelineSimulation simulated{};
  bool is_pipeline() const { return !schedule.stages.empty(); }
};

// One device; N devices that divide the batch, compute, and then reduce on a ring.
Row uncut_row(const std::string& name, const StageProfile& profile) {
  if (!profile.uncut)
    throw Error(fmt::format("'{}' needs \"single_ms\" and \"sync_bytes\" in the profile", name));
  const UncutCost& uncut = *profile.uncut;
  Row row{.name = name};
  PipelineSimulation& s = row.simulated;
  s.period_ms = uncut.single_ms;
  s.shares.busy = 1;
  if (name == "single") return row;
  const auto n = static_cast<int>(profile.stages.size());
  const LinkModel link{profile.link.latency_ms, profile.link.bytes_per_ms};  // in ms
  const double compute_ms = uncut.data_compute_factor * uncut.single_ms / n,
               sync_ms = all_reduce_seconds(link, uncut.sync_bytes, n);
  s.period_ms = compute_ms + sync_ms;
  s.shares = {.busy = compute_ms / s.period_ms, .transfer = sync_ms / s.period_ms};
  return row;
}

Row row_of(const std::string& name, const StageProfile& profile, const PipelineSimulationOptions& o) {
  if (name == "single" || name == "data") return uncut_row(name, profile);
  const PipelineShape shape{.stages = static_cast<int>(profile.stages.size()),
                            .microbatches = o.microbatches,
                            .chunks = name == "interleaved" ? o.chunks : 1,
                            .target = spectrain_target(o.spectrain_target)};
  Row row{.name = name, .schedule = schedule_called(name, shape)};
  row.simulated = simulate_pipeline(profile, row.schedule, o.batches);
  return row;
}

// Every schedule that takes these stages and micro-batches, the fastest first; of equally fast ones those
// that need less memory, then those with younger weights.
std::vector<Row> all_rows(const StageProfile& profile, const PipelineSimulationOptions& o) {
  std::vector<std::string> names;
  if (profile.uncut) names = {"single", "data"};
  std::ranges::copy(schedule_names(), std::back_inserter(names));
  std::vector<Row> rows;
  for (const std::string& name : names) {
    try {
      rows.push_back(row_of(name, profile, o));
    } catch (const Error& e) {
      fmt::print(stderr, "left out: {}: {}\n", name, e.what());
    }
  }
  std::ranges::stable_sort(rows, {}, [](const Row& row) {
    const PipelineSimulation& s = row.simulated;
    return std::tuple(std::llround(s.period_ms * 1e6), s.peak_bytes, s.staleness);
  });
  return rows;
}

ordered_json json_of(const SimulatedOp& op) {
  return {{"kind", name_of(op.kind)},    {"stage", op.stage},     {"batch", op.batch},
          {"microbatch", op.microbatch}, {"lane", op.lane},       {"start_ms", op.start_ms},
          {"end_ms", op.end_ms},         {"version", op.version}, {"predicts", op.predicts}};
}

ordered_json json_of(const Row& row, double batch_ms) {
  const PipelineSimulation& s = row.simulated;
  ordered_json ops = ordered_json::array();
  for (const SimulatedOp& op : s.ops) ops.push_back(json_of(op));
  return {{"schedule", row.name},
          {"period_ms", s.period_ms},
          {"speedup", batch_ms / s.period_ms},
          {"busy", s.shares.busy},
          {"transfer", s.shares.transfer},
          {"transfer_idle", s.shares.transfer_idle},
          {"imbalance_idle", s.shares.imbalance_idle},
          {"in_flight", s.in_flight},
          {"weight_versions", s.weight_versions},
          {"peak_bytes", s.peak_bytes},
          {"staleness", s.staleness},
          {"ops", ops}};
}

void print(const std::vector<Row>& rows, double batch_ms) {
  fmt::print("{:<18} {:>10} {:>8} {:>6} {:>9} {:>14} {:>10} {:>9} {:>6}  {}\n", "schedule", "period ms",
             "speedup", "busy", "transfer", "transfer idle", "imbalance", "peak MB", "stale",
             "in flight; versions of weights");
  for (const Row& row : rows) {
    const PipelineSimulation& s = row.simulated;
    fmt::print("{:<18} {:>10.3f} {:>8.3f} {:>6.3f} {:>9.3f} {:>14.3f} {:>10.3f}", row.name, s.period_ms,
               batch_ms / s.period_ms, s.shares.busy, s.shares.transfer, s.shares.transfer_idle,
               s.shares.imbalance_idle);
    if (row.is_pipeline())
      fmt::print(" {:>9.1f} {:>6}  {}; {}", static_cast<double>(s.peak_bytes) / 1e6, s.staleness,
                 fmt::join(s.in_flight, " "), fmt::join(s.weight_versions, " "));
    fmt::print("\n");
  }
}

int lag_of(const PipelineSchedule& schedule, Phase phase, int stage) {
  const auto task = std::ranges::find_if(schedule.tasks, [&](const Task& t) {
    return t.phase == phase && t.stage == stage && t.microbatch == 0;
  });
  return task->lag;
}

// "W5→9": reads the weights of the start of unit 5, and predicts those of unit 9.
std::string weights_of(const SimulatedOp& op, const WeightRule& rule, int update_lag) {
  const bool forward = op.kind == SimulatedOp::Kind::forward || !rule.backward_age;
  const std::int64_t read =
      std::max<std::int64_t>(0, op.batch + 1 - (forward ? rule.forward_age : *rule.backward_age));
  const auto unit = [&](std::int64_t version) { return version == 0 ? 0 : version + update_lag; };
  return op.predicts == read ? fmt::format("W{}", unit(read))
                             : fmt::format("W{}→{}", unit(read), unit(op.predicts));
}

// Draws the way of one batch through the stages: the paper's Fig. 8.
std::string way_of(const Row& row, std::int64_t batch) {
  const PipelineSchedule& schedule = row.schedule;
  std::map<std::int64_t, std::map<int, std::string>> cells;  // by unit and stage
  for (const SimulatedOp& op : row.simulated.ops) {
    const bool forward = op.kind == SimulatedOp::Kind::forward;
    if (op.batch != batch || op.microbatch != 0 || (!forward && op.kind != SimulatedOp::Kind::backward))
      continue;
    const auto stage = static_cast<std::size_t>(op.stage);
    std::string& cell =
        cells[batch + lag_of(schedule, forward ? Phase::forward : Phase::backward, op.stage)][op.stage];
    cell += fmt::format(
        "{}{} {}", cell.empty() ? "" : "  ", name_of(op.kind),
        weights_of(op, schedule.stages[stage].weights, lag_of(schedule, Phase::update, op.stage)));
  }
  const auto width = [](const std::string& text) {  // of an arrow: one column, three bytes
    return static_cast<std::int64_t>(text.size()) - (std::ranges::count(text, '\xe2') * 2);
  };
  std::string drawing = fmt::format(
      "\nbatch {} under {}: Wt is what a stage has at the start of unit t\n{:<10}", batch, row.name, "unit");
  std::map<std::int64_t, std::int64_t> widths;
  for (const auto& [unit, stages] : cells) {
    for (const auto& [stage, text] : stages) widths[unit] = std::max(widths[unit], width(text));
    widths[unit] = std::max<std::int64_t>(widths[unit], 4);
    drawing += fmt::format("{:<{}}", unit, widths[unit] + 2);
  }
  drawing.erase(drawing.find_last_not_of(' ') + 1);
  for (int k = 0; k < static_cast<int>(schedule.stages.size()); ++k) {
    drawing += fmt::format("\n{:<10}", fmt::format("stage {}", k));
    for (auto& [unit, stages] : cells)
      drawing += stages[k] + std::string(static_cast<std::size_t>(widths[unit] + 2 - width(stages[k])), ' ');
    drawing.erase(drawing.find_last_not_of(' ') + 1);
  }
  return drawing + "\n";
}

// The beginning of a timeline: until the pipeline is full, and some batches more.
std::string beginning(const Row& row) {
  constexpr double kShownPeriods = 8;
  Timeline timeline = row.simulated.timeline;
  const double lags = std::ranges::max(row.schedule.tasks, {}, &Task::lag).lag;
  const double end = (lags + kShownPeriods) * row.simulated.period_ms / 1e3;
  std::erase_if(timeline.spans, [&](const Span& span) { return span.end > end; });
  return fmt::format("\n{}\n{}", row.name, to_text(timeline, kColumns));
}

std::string schedule_help() {
  std::string text =
      "one or more, as pipedream,dualpipe; all: all that take the profile's stages, the fastest first\n";
  for (const ScheduleFunction& s : pipeline_schedules()) text += fmt::format("{}: {}\n", s.name, s.help);
  return text +
         "Those with several batches in flight run in lockstep; with -async after the name, freely.\n"
         "single: one device; data: each device has a part of the batch (profile: single_ms, sync_bytes)";
}

}  // namespace

PipelineSchedule schedule_called(std::string name, PipelineShape shape) {
  const bool asynchronous = name.ends_with(kAsynchronous);
  if (asynchronous) name.resize(name.size() - kAsynchronous.size());
  const PipelineSchedule free = make_schedule(name, shape);
  if (!free.overlaps_batches() && asynchronous && shape.stages > 1)
    throw Error(fmt::format("'{}{}': the schedule '{}' has no lockstep from which it could be free", name,
                            kAsynchronous, name));
  shape.lockstep = free.overlaps_batches() && !asynchronous;
  return shape.lockstep ? make_schedule(name, shape) : free;
}

void add_pipeline_simulation_options(CLI::App& command, PipelineSimulationOptions& o) {
  command.add_option("--profile", o.profile, "times and bytes of the stages, as JSON (docs/pipelines.md)")
      ->required();
  command.add_option("--schedule", o.schedules, schedule_help());
  command.add_option("--batches", o.batches, "batches to run, from an empty to a drained pipeline")
      ->check(CLI::Range(std::int64_t{1}, kMostBatches));
  command.add_option("--microbatches", o.microbatches, "of a batch")->check(CLI::Range(1, 10'000));
  command.add_option("--chunks", o.chunks, "interleaved: stages of each device")->check(CLI::Range(1, 1000));
  command.add_option("--spectrain-target", o.spectrain_target,
                     "which weights spectrain predicts: paper, effective, serial");
  command.add_flag("--json", o.json, "print JSON, with every operation");
  command.add_option("--trace", o.trace, "write the timeline here, for ui.perfetto.dev; of one --schedule");
  command.add_flag("--timeline", o.timeline, "draw the first batches");
  command.add_option("--follow", o.follow, "draw the way of this batch, and the weights that it meets")
      ->check(CLI::Range(std::int64_t{0}, kMostBatches));
}

void simulate_pipelines(const PipelineSimulationOptions& o) {
  require_writable("--trace", o.trace);
  const StageProfile profile = read_stage_profile(o.profile);
  std::vector<Row> rows;
  if (o.schedules == "all")
    rows = all_rows(profile, o);
  else
    for (const std::string& name : parts_of(o.schedules)) rows.push_back(row_of(name, profile, o));
  if (!o.trace.empty() && (rows.size() != 1 || !rows[0].is_pipeline()))
    throw Error("--trace: a trace is of one --schedule");
  if (o.follow >= o.batches)
    throw Error(fmt::format("--follow {}: the simulation has {}", o.follow, counted(o.batches, "batch")));
  const double batch_ms = profile.batch_ms();
  if (o.json) {
    ordered_json schedules = ordered_json::array();
    for (const Row& row : rows) schedules.push_back(json_of(row, batch_ms));
    fmt::print("{}\n", ordered_json{{"schedules", schedules}}.dump());
  } else {
    print(rows, batch_ms);
    for (const Row& row : rows) {
      if (row.is_pipeline() && o.follow >= 0) fmt::print("{}", way_of(row, o.follow));
      if (row.is_pipeline() && o.timeline) fmt::print("{}", beginning(row));
    }
  }
  if (!o.trace.empty()) write_file(o.trace, to_perfetto(rows[0].simulated.timeline));
}

}  // namespace tandem::apps
