#include <tandem/plan/plan_file.h>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <tandem/core/base/json_input.h>

namespace tandem::engine {
namespace {

constexpr double kMostMs = 10e3;  // a run that is interrupted waits for its timers

FusionGroup group_of(const JsonInput& group) {
  if (!group.is_object()) return {group.texts()};
  group.require_keys({"parameters", "threads", "earliest_ms"});
  return {group["parameters"].required().texts(), group["threads"].integer(1, 1),
          group["earliest_ms"].number(0, 0, kMostMs)};
}

}  // namespace

void read_plan(const std::string& file, Strategy& strategy) {
  const JsonInput plan = JsonInput::parse(fmt::format("plan '{}'", file), read_text("plan", file));
  plan.require_keys({"cuts", "fusion_groups", "swap", "recompute"});
  strategy.cuts = plan["cuts"].texts();
  strategy.fusion_groups.clear();
  for (const JsonInput& group : plan["fusion_groups"].items())
    strategy.fusion_groups.push_back(group_of(group));
  strategy.swap = plan["swap"].texts();
  strategy.recompute = plan["recompute"].texts();
}

std::string plan_with_cuts(const std::vector<std::string>& cuts) {
  return nlohmann::json{{"cuts", cuts}}.dump() + "\n";
}

}  // namespace tandem::engine
