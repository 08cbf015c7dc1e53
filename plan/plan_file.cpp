#include <tandem/plan/plan_file.h>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <tandem/core/base/error.h>
#include <tandem/core/base/json_input.h>

namespace tandem::engine {
namespace {

constexpr double kLeastRate = 1e-3, kMostRate = 1e15;  // bytes per ms
constexpr double kMostMs = 10e3;                       // a run that is interrupted waits for its timers

FusionGroup group_of(const JsonInput& group) {
  if (!group.is_object()) return {group.texts()};
  group.require_keys({"parameters", "threads", "earliest_ms"});
  return {group["parameters"].required().texts(), group["threads"].integer(1, 1),
          group["earliest_ms"].number(0, 0, kMostMs)};
}

constexpr int kMostPlaces = 1'000'000, kMostModels = 10'000;

std::vector<int> places_of(const JsonInput& list) {
  std::vector<int> places;
  for (const JsonInput& place : list.items()) places.push_back(place.integer(0, 0, kMostPlaces));
  return places;
}

KnownMemoryPlan memory_plan_of(const JsonInput& device) {
  device.require_keys({"problem", "resident_at_start", "host_at_start", "program"});
  KnownMemoryPlan known{{}, device["problem"].required().text()};
  known.plan.resident_at_start = places_of(device["resident_at_start"]);
  known.plan.host_at_start = places_of(device["host_at_start"]);
  for (const JsonInput& step : device["program"].required().items()) {
    const std::vector<JsonInput> parts = step.items();
    if (parts.size() != 2 && parts.size() != 3)
      throw Error("an instruction of a memory plan is [\"alloc\", value], or [\"run\", graph, node]");
    MemoryStep made{memory_step_kind(parts[0].text())};
    const bool computes = made.kind == MemoryStep::Kind::run || made.kind == MemoryStep::Kind::recompute;
    if (computes != (parts.size() == 3))
      throw Error(fmt::format("the instruction '{}' of a memory plan has {} numbers", name_of(made.kind),
                              parts.size() - 1));
    (computes ? made.graph : made.value) = parts[1].integer(0, 0, kMostPlaces);
    if (computes) made.node = parts[2].integer(0, 0, kMostPlaces);
    known.plan.steps.push_back(made);
  }
  return known;
}

}  // namespace

void read_plan(const std::string& file, Strategy& strategy) {
  const JsonInput plan = JsonInput::parse(fmt::format("plan '{}'", file), read_text("plan", file));
  plan.require_keys(
      {"cuts", "fusion_groups", "swap", "recompute", "arrays", "array_ring", "turns", "copy_link", "memory"});
  strategy.cuts = plan["cuts"].texts();
  strategy.fusion_groups.clear();
  for (const JsonInput& group : plan["fusion_groups"].items())
    strategy.fusion_groups.push_back(group_of(group));
  strategy.swap = plan["swap"].texts();
  strategy.recompute = plan["recompute"].texts();
  if (const JsonInput link = plan["copy_link"]; link.present()) {
    link.require_keys({"bytes_per_ms", "duplex"});
    strategy.copy_link = {link["bytes_per_ms"].required().number(0, kLeastRate, kMostRate),
                          link["duplex"].flag(true)};
  }
  strategy.known_memory_plans.clear();
  for (const JsonInput& device : plan["memory"].items())
    strategy.known_memory_plans.push_back(memory_plan_of(device));
  if (!plan["arrays"].present()) return;
  strategy.arrays.clear();
  for (const JsonInput& models : plan["arrays"].items())
    strategy.arrays.push_back(models.required().integer(1, 1, kMostModels));
  strategy.array_order = plan["array_ring"].flag(true) ? ArrayOrder::ring : ArrayOrder::in_turn;
}

std::vector<int> read_turns(const std::string& file) {
  const JsonInput plan = JsonInput::parse(fmt::format("plan '{}'", file), read_text("plan", file));
  std::vector<int> turns;
  for (const JsonInput& models : plan["turns"].items())
    turns.push_back(models.required().integer(1, 1, kMostModels));
  return turns;
}

std::string plan_with_cuts(const std::vector<std::string>& cuts) {
  return nlohmann::json{{"cuts", cuts}}.dump() + "\n";
}

std::string plan_of_run(const Strategy& strategy, const std::vector<DevicePlan>& memory,
                        const std::vector<int>& turns) {
  nlohmann::ordered_json j = nlohmann::ordered_json::object();
  if (!strategy.cuts.empty()) j["cuts"] = strategy.cuts;
  if (!memory.empty() && strategy.arrays.size() > 1) {
    j["arrays"] = strategy.arrays;
    j["array_ring"] = strategy.array_order == ArrayOrder::ring;
  }
  if (!turns.empty()) j["turns"] = turns;
  if (!memory.empty() && strategy.copy_link.bytes_per_ms > 0)
    j["copy_link"] = {{"bytes_per_ms", strategy.copy_link.bytes_per_ms},
                      {"duplex", strategy.copy_link.duplex}};
  for (const DevicePlan& device : memory) {
    nlohmann::ordered_json steps = nlohmann::ordered_json::array();
    for (const MemoryStep& s : device.plan.plan.steps)
      if (s.value >= 0)
        steps.push_back({name_of(s.kind), s.value});
      else
        steps.push_back({name_of(s.kind), s.graph, s.node});
    j["memory"].push_back({{"problem", checksum_of(device.step.problem)},
                           {"resident_at_start", device.plan.plan.resident_at_start},
                           {"host_at_start", device.plan.plan.host_at_start},
                           {"program", std::move(steps)}});
  }
  return j.dump() + "\n";
}

}  // namespace tandem::engine
