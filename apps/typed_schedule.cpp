#include "typed_schedule.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <tandem/core/base/contains.h>
#include <tandem/core/base/error.h>
#include <tandem/pipeline/schedule_costs.h>
#include <tandem/pipeline/schedule_file.h>

namespace tandem::apps {
using namespace engine;
namespace {

constexpr std::string_view kAsynchronous = "-async";

void require_same(const TypedSchedule& typed, std::int64_t has, int wanted, const std::string& what) {
  if (wanted > 0 && wanted != has)
    throw Error(fmt::format("the schedule '{}' is for {}, not for {}: give {}, or another file", typed.text,
                            counted(has, what), wanted, has));
}

}  // namespace

bool is_schedule_file(const std::string& text) { return text.ends_with(".json"); }

TypedSchedule typed_schedule(const std::string& text) {
  if (is_schedule_file(text)) return {.text = text, .file = read_schedule(text)};
  const bool asynchronous = text.ends_with(kAsynchronous);
  const std::string name = text.substr(0, text.size() - (asynchronous ? kAsynchronous.size() : 0));
  if (is_schedule_file(name))
    throw Error(fmt::format("'{}': a file says itself where its devices meet; give '{}'", text, name));
  const std::vector<std::string> names = schedule_names();
  if (!contains(names, name))
    throw Error(
        fmt::format("unknown schedule '{}'; there are: {}, and FILE.json. Those with several batches in "
                    "flight run freely with -async after the name",
                    name, fmt::join(names, ", ")));
  const ScheduleFunction& function = schedule_named(name);
  if (asynchronous && !function.overlaps_batches)
    throw Error(
        fmt::format("'{}': only schedules with several batches in flight run in lockstep without -async: {}; "
                    "give '{}'",
                    text, fmt::join(schedule_names(&ScheduleFunction::overlaps_batches), ", "), name));
  return {.text = text, .function = &function, .asynchronous = asynchronous};
}

PipelineSchedule made(const TypedSchedule& typed, PipelineShape shape) {
  if (!typed.function) {
    require_same(typed, std::ssize(typed.file.stages), shape.stages, "stage");
    require_same(typed, typed.file.microbatches(), shape.microbatches, "micro-batch");
    return typed.file;
  }
  shape.microbatches = std::max(1, shape.microbatches);
  return make_schedule(typed.function->name, shape);
}

std::string why_not_taken(bool ScheduleFunction::*takes, const std::vector<TypedSchedule>& schedules,
                          const std::string& text) {
  if (std::ranges::any_of(schedules,
                          [&](const TypedSchedule& s) { return s.function && s.function->*takes; }))
    return "";
  return fmt::format("with --schedule {}; it is for {}", text, fmt::join(schedule_names(takes), ", "));
}

void add_shape_options(CLI::App& command, ShapeOptions& o) {
  command
      .add_option("--microbatches", o.microbatches, "of a batch (0: those of a schedule's file, otherwise 1)")
      ->check(CLI::Range(0, 2000));
  command
      .add_option("--chunks", o.chunks,
                  fmt::format("stages of each device; for {}",
                              fmt::join(schedule_names(&ScheduleFunction::takes_chunks), ", ")))
      ->check(CLI::Range(1, 1000));
  command.add_option("--spectrain-target", o.spectrain_target,
                     "which weights spectrain predicts: paper, effective, serial");
}

void check_shape_options(const ShapeOptions& o, const std::vector<TypedSchedule>& schedules,
                         const std::string& text) {
  const ShapeOptions without;
  const auto check = [&](const char* option, bool given, bool ScheduleFunction::*takes) {
    if (const std::string why = why_not_taken(takes, schedules, text); given && !why.empty())
      throw Error(fmt::format("{} has no effect {}", option, why));
  };
  check("--chunks", o.chunks != without.chunks, &ScheduleFunction::takes_chunks);
  check("--spectrain-target", o.spectrain_target != without.spectrain_target,
        &ScheduleFunction::takes_target);
}

PipelineSchedule made(const TypedSchedule& typed, int stages, const ShapeOptions& o) {
  PipelineShape shape{
      .stages = stages, .microbatches = o.microbatches, .target = spectrain_target(o.spectrain_target)};
  if (typed.function) {
    if (typed.function->takes_chunks) shape.chunks = o.chunks;
    shape.lockstep = typed.function->overlaps_batches && !typed.asynchronous && stages > 1;
  }
  return made(typed, shape);
}

std::string why_devices_take_turns(const PipelineSchedule& schedule) {
  if (schedule.overlaps_batches()) return "";
  const int parts = schedule.microbatches();
  int held = 1;
  for (int k = 0; k < static_cast<int>(schedule.stages.size()); ++k)
    held = std::max(held, held_activations(schedule, k));
  const int busy = std::min(parts, held);
  if (busy >= schedule.devices()) return "";
  const std::string why = busy == parts ? fmt::format("since a batch is {}: give more --microbatches, or a",
                                                      counted(parts, "micro-batch"))
                                        : "since the schedule lets each micro-batch return first: give a";
  return fmt::format("{} of {} work at a time, {} --schedule with several {} in flight", busy,
                     counted(schedule.devices(), "device"), why,
                     busy == parts ? "batches" : "micro-batches or batches");
}

std::string typed_schedule_help() {
  std::string text;
  for (const ScheduleFunction& s : pipeline_schedules()) text += fmt::format("{}: {}\n", s.name, s.help);
  return text +
         "FILE.json: a schedule of your own (docs/pipelines.md)\n"
         "Those with several batches in flight run in lockstep; with -async after the name, freely";
}

}  // namespace tandem::apps
