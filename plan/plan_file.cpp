#include <tandem/plan/plan_file.h>

#include <fstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <tandem/core/error.h>

namespace tandem {

void read_plan(const std::string& file, Strategy& strategy) {
  std::ifstream in(file);
  if (!in) throw Error(fmt::format("plan '{}': cannot be read", file));
  try {
    const auto plan = nlohmann::json::parse(in);
    for (const auto& [key, value] : plan.items()) {
      if (key == "cuts")
        value.get_to(strategy.cuts);
      else if (key == "fusion_groups")
        value.get_to(strategy.fusion_groups);
      else if (key == "swap")
        value.get_to(strategy.swap);
      else if (key == "recompute")
        value.get_to(strategy.recompute);
      else
        throw Error(fmt::format(
            "plan '{}': unknown key '{}'; there are: cuts, fusion_groups, swap, recompute", file, key));
    }
  } catch (const nlohmann::json::exception& e) {
    throw Error(fmt::format("plan '{}': {}", file, e.what()));
  }
}

}  // namespace tandem
