#include "pipeline_simulation.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <tandem/core/base/contains.h>
#include <tandem/core/base/error.h>
#include <tandem/core/base/units.h>
#include <tandem/dist/link.h>
#include <tandem/pipeline/schedule_file.h>
#include <tandem/pipeline/schedules.h>
#include <tandem/plan/pipeline_simulation.h>
#include <tandem/plan/stage_program.h>

#include "batch_way.h"
#include "decimal.h"
#include "output_file.h"

namespace tandem::apps {
using namespace engine;
namespace {

using nlohmann::ordered_json;
constexpr int kColumns = 96;
constexpr std::int64_t kMostBatches = 1'000'000;

// A row of the result: a simulated schedule, or devices that train the whole network.
struct Row {
  std::string name;
  PipelineSchedule schedule{};
  PipelineSimulation simulated{};
  bool is_pipeline() const { return !schedule.stages.empty(); }
};

PipelineSchedule schedule_of(const std::string& name, const StageProfile& profile,
                             const PipelineSimulationOptions& o) {
  return made(typed_schedule(name), static_cast<int>(profile.stages.size()), o.shape);
}

// Does it, and names the schedule in its Error.
void naming(const std::string& name, const std::function<void()>& work) try {
  work();
} catch (const Error& e) {
  throw Error(fmt::format("{}: {}", name, e.what()));
}

Row row_of(const std::string& name, const StageProfile& profile, const PipelineSimulationOptions& o) {
  if (name == "single") return {.name = name, .simulated = single_device(profile)};
  if (name == "data") return {.name = name, .simulated = data_parallel(profile)};
  Row row{.name = name, .schedule = schedule_of(name, profile, o)};
  naming(name, [&] {
    require_stages(profile, row.schedule);
    require_steady_state(row.schedule, o.batches);
  });
  return row;
}

// A large simulation takes minutes, so it begins after all checks. All operations of all rows are kept.
std::vector<Row> simulated(std::vector<Row> rows, const StageProfile& profile, std::int64_t batches) {
  constexpr std::int64_t kMostTasks = 10'000'000;  // with transfers, some gigabytes
  std::int64_t tasks = 1;
  for (const Row& row : rows) tasks += std::ssize(row.schedule.tasks);
  if (const std::int64_t most = std::max<std::int64_t>(1, kMostTasks / tasks); batches > most)
    throw Error(fmt::format("--batches {}: these schedules have {} per batch, so at most {} can be simulated",
                            batches, counted(tasks - 1, "task"), most));
  for (Row& row : rows)
    if (row.is_pipeline())
      naming(row.name, [&] { row.simulated = simulate_pipeline(profile, row.schedule, batches); });
  return rows;
}

// The rows that --schedule names.
std::vector<Row> named_rows(const StageProfile& profile, const PipelineSimulationOptions& o) {
  std::vector<Row> rows;
  std::vector<TypedSchedule> schedules;
  for (const std::string& name : parts_of(o.schedules)) {
    if (contains(rows, name, &Row::name)) throw Error(fmt::format("--schedule names '{}' twice", name));
    rows.push_back(row_of(name, profile, o));
    if (rows.back().is_pipeline()) schedules.push_back(typed_schedule(name));
  }
  check_shape_options(o.shape, schedules, o.schedules);
  return simulated(std::move(rows), profile, o.batches);
}

// The rows of one device and of data parallelism, if the profile has them, and every schedule that takes the
// shape.
std::vector<std::string> all_names(const StageProfile& profile, const PipelineSimulationOptions& o) {
  spectrain_target(o.shape.spectrain_target);  // throws, rather than that every schedule is left out
  std::vector<std::string> names;
  if (profile.uncut) names = {"single", "data"};
  for (const std::string& name : schedule_names()) {
    try {
      require_stages(profile, schedule_of(name, profile, o));
      names.push_back(name);
    } catch (const Error& e) {
      fmt::print(stderr, "left out: {}: {}\n", name, e.what());
    }
  }
  return names;
}

// The fastest first; of equally fast ones those that need less memory, then those with younger weights. What
// is not known comes last.
std::vector<Row> all_rows(const StageProfile& profile, const PipelineSimulationOptions& o) {
  std::vector<Row> rows;
  for (const std::string& name : all_names(profile, o)) rows.push_back(row_of(name, profile, o));
  rows = simulated(std::move(rows), profile, o.batches);
  std::ranges::stable_sort(rows, {}, [](const Row& row) {
    const PipelineSimulation& s = row.simulated;
    return std::tuple(std::llround(s.period_ms * 1e6), !row.is_pipeline(), s.peak_bytes, s.staleness);
  });
  return rows;
}

// The profile's, with what options say instead.
StageProfile profile_of(const PipelineSimulationOptions& o) {
  StageProfile profile = read_stage_profile(o.profile);
  if (!o.link.empty()) {
    const LinkModel link = parse_link(o.link);
    profile.link.bytes_per_ms = link.bandwidth / kMsPerSecond;
    profile.link.latency_ms = link.latency * kMsPerSecond;
  }
  if (o.corun) {
    if (!std::isfinite(*o.corun)) throw Error(fmt::format("--corun {}: it must be from 0.5 to 1", *o.corun));
    profile.corun = *o.corun;
  }
  return profile;
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
  const auto known = [&](const ordered_json& of_pipeline) {
    return row.is_pipeline() ? of_pipeline : nullptr;
  };
  return {{"schedule", row.name},
          {"period_ms", s.period_ms},
          {"speedup", batch_ms / s.period_ms},
          {"busy", s.shares.busy},
          {"transfer", s.shares.transfer},
          {"transfer_idle", s.shares.transfer_idle},
          {"imbalance_idle", s.shares.imbalance_idle},
          {"in_flight", s.in_flight},
          {"weight_versions", s.weight_versions},
          {"peak_bytes", known(s.peak_bytes)},
          {"staleness", known(s.staleness)},
          {"ops", ops}};
}

void print(const std::vector<Row>& rows, double batch_ms) {
  fmt::print("{:<20} {:>10} {:>8} {:>6} {:>9} {:>14} {:>10} {:>9} {:>6}  {}\n", "schedule", "period ms",
             "speedup", "busy", "transfer", "transfer idle", "imbalance", "peak MB", "stale",
             "in flight; versions of weights");
  for (const Row& row : rows) {
    const PipelineSimulation& s = row.simulated;
    fmt::print("{:<20} {:>10.3f} {:>8.3f} {:>6.3f} {:>9.3f} {:>14.3f} {:>10.3f}", row.name, s.period_ms,
               batch_ms / s.period_ms, s.shares.busy, s.shares.transfer, s.shares.transfer_idle,
               s.shares.imbalance_idle);
    if (row.is_pipeline())
      fmt::print(" {:>9.1f} {:>6}  {}; {}", static_cast<double>(s.peak_bytes) / 1e6, s.staleness,
                 fmt::join(s.in_flight, " "), fmt::join(s.weight_versions, " "));
    fmt::print("\n");
  }
}

bool has_row(const std::vector<Row>& rows, const char* name) { return contains(rows, name, &Row::name); }

// What the numbers of a table rest on.
void print_notes(const std::vector<Row>& rows, const StageProfile& profile) {
  if (profile.uncut)
    fmt::print(
        "speedup is over the stages one after another, {:.3f} ms; a whole batch on one device takes {:.3f} ms\n",
        profile.batch_ms(), profile.uncut->single_ms);
  const auto stages = std::ssize(profile.stages);
  for (const Row& row : rows)
    if (row.is_pipeline() && row.schedule.devices() < stages && rows.size() > 1)
      fmt::print("{} has {}, with several stages each; other schedules have {}\n", row.name,
                 counted(row.schedule.devices(), "device"), stages);
  for (const Row& row : rows)
    if (const std::string why = row.is_pipeline() ? why_devices_take_turns(row.schedule) : ""; !why.empty())
      fmt::print("{}: {}\n", row.name, why);
  if (!has_row(rows, "data")) return;
  if (!profile.uncut->data_compute_factor)
    fmt::print(
        "data computes for single_ms / {} here; parts of a batch take longer, but the profile has no "
        "data_compute_factor\n",
        profile.devices());
  if (profile.link.bytes_per_ms == 0 && profile.link.latency_ms == 0)
    fmt::print("without a link, transfers and all-reduces take no time (--link)\n");
}

// The beginning of a timeline: until the pipeline is full, and some batches more.
std::string beginning(const Row& row) {
  constexpr double kShownPeriods = 8;
  Timeline timeline = row.simulated.timeline;
  const double lags = std::ranges::max(row.schedule.tasks, {}, &Task::lag).lag;
  const double end = (lags + kShownPeriods) * row.simulated.period_ms / kMsPerSecond;
  std::erase_if(timeline.spans, [&](const Span& span) { return span.end > end; });
  const double ms = timeline.seconds() * kMsPerSecond;
  return fmt::format("\n{}: {:.4g} ms, a column is {:.3g} ms\n{}", row.name, ms, ms / kColumns,
                     to_text(timeline, kColumns));
}

std::string followed(const Row& row, std::int64_t batch) {
  return row.schedule.microbatches() == 1 ? fmt::format("batch {}", batch)
                                          : fmt::format("micro-batch 0 of batch {}", batch);
}

}  // namespace

void add_pipeline_simulation_options(CLI::App& command, PipelineSimulationOptions& o) {
  command.add_option("--profile", o.profile, "times and bytes of the stages, as JSON (docs/pipelines.md)")
      ->required();
  command.add_option(
      "--schedule", o.schedules,
      "one or more, as pipedream,mine.json; all: all names that take the profile's stages, the fastest first\n" +
          typed_schedule_help() +
          "\nsingle: one device; data: each device has a part of the batch (profile: single_ms, sync_bytes)");
  command.add_option("--batches", o.batches, "batches to run, from an empty to a drained pipeline")
      ->check(CLI::Range(std::int64_t{1}, kMostBatches));
  add_shape_options(command, o.shape);
  command.add_option("--link", o.link,
                     "between devices, instead of the profile's: bandwidth, latency, or both: 1GB/s,50us");
  command.add_option("--corun", o.corun, "ρ instead of the profile's: F beside B take max(F, B, ρ(F + B))")
      ->check(CLI::Range(0.5, 1.0));
  command.add_flag("--json", o.json, "print JSON, with every operation; without --timeline and --follow");
  command.add_option("--trace", o.trace, "write the timeline here, for ui.perfetto.dev; of one --schedule");
  command.add_option("--write-schedule", o.write_schedule,
                     "write the schedule here, to change it and give it as FILE.json; of one --schedule");
  command.add_flag("--timeline", o.timeline, "draw the first batches");
  command.add_option("--follow", o.follow, "draw the way of this batch, and the weights that it meets")
      ->check(CLI::Range(std::int64_t{0}, kMostBatches));
}

void simulate_pipelines(const PipelineSimulationOptions& o) {
  require_replaceable("--trace", o.trace, "trace");
  require_replaceable("--write-schedule", o.write_schedule, "schedule");
  if (!o.trace.empty() && o.trace == o.write_schedule)
    throw Error(fmt::format("--trace and --write-schedule are both '{}'", o.trace));
  if (o.json && (o.timeline || o.follow >= 0))
    throw Error("--json has no drawings, but every operation: leave out --timeline and --follow, or --json");
  if (o.follow >= o.batches)
    throw Error(fmt::format("--follow {}: the simulation has {}", o.follow, counted(o.batches, "batch")));
  const StageProfile profile = profile_of(o);
  const std::vector<Row> rows = o.schedules == "all" ? all_rows(profile, o) : named_rows(profile, o);
  const bool is_one = rows.size() == 1 && rows[0].is_pipeline();
  if (!o.trace.empty() && !is_one)
    throw Error("--trace: name one --schedule of a pipeline, of which the trace is");
  if (!o.write_schedule.empty() && !is_one)
    throw Error("--write-schedule: name one --schedule of a pipeline, which is written");
  if ((o.timeline || o.follow >= 0) && std::ranges::none_of(rows, &Row::is_pipeline))
    throw Error(fmt::format("{}: --schedule {} is no pipeline's, and is not drawn",
                            o.timeline ? "--timeline" : "--follow", o.schedules));
  const double batch_ms = profile.batch_ms();
  if (o.json) {
    ordered_json schedules = ordered_json::array();
    for (const Row& row : rows) schedules.push_back(json_of(row, batch_ms));
    fmt::print("{}\n", ordered_json{{"schedules", schedules}}.dump());
  } else {
    print(rows, batch_ms);
    print_notes(rows, profile);
    for (const Row& row : rows) {
      if (row.is_pipeline() && o.follow >= 0)
        fmt::print("{}", drawing_of(way_of_batch(row.schedule, row.simulated, o.follow),
                                    followed(row, o.follow), row.name));
      if (row.is_pipeline() && o.timeline) fmt::print("{}", beginning(row));
    }
  }
  if (!o.trace.empty()) write_json(o.trace, "trace", to_perfetto(rows[0].simulated.timeline));
  if (!o.write_schedule.empty()) write_json(o.write_schedule, "schedule", to_json(rows[0].schedule));
}

}  // namespace tandem::apps
