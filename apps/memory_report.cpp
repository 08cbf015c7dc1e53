#include "memory_report.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include <tandem/core/base/contains.h>
#include <tandem/core/base/error.h>
#include <tandem/core/base/units.h>
#include <tandem/dist/link.h>
#include <tandem/memory/memory_explanation.h>
#include <tandem/memory/memory_planner.h>

#include "log.h"

namespace tandem::apps {
using namespace engine;
namespace {

double mb(std::int64_t bytes) { return static_cast<double>(bytes) / kBytesPerMb; }

std::string_view decision(const ValueVerdict& v) {
  if (v.is_swapped) return v.is_recomputed ? "swap, recompute" : "swap";
  return v.is_recomputed ? "recompute" : "keep";
}

// Which of the plans: that of a device, or of a turn.
std::string number_of(std::size_t plan, const std::vector<DevicePlan>& plans, const Strategy& s) {
  if (s.devices() > 1) return fmt::format(" of device {}", plan);
  return plans.size() > 1 ? fmt::format(" {}", plan) : "";
}

std::string ms_or_none(double ms) { return ms > 0 ? fmt::format("{:.3f}", ms) : "-"; }

}  // namespace

CopyLink parse_copy_link(std::string_view text) {
  constexpr std::string_view kShared = ",shared";
  const bool shared = text.ends_with(kShared);
  const LinkModel link = parse_link(shared ? text.substr(0, text.size() - kShared.size()) : text);
  if (link.bandwidth == 0 || link.latency > 0)
    throw Error(fmt::format("'{}' is no link for copies: give a bandwidth alone, as 32GB/s", text));
  return {.bytes_per_ms = link.bandwidth / kMsPerSecond, .duplex = !shared};
}

void say_memory_plans(const std::vector<DevicePlan>& plans, const Strategy& s) {
  for (std::size_t d = 0; d < plans.size(); ++d) {
    const auto& [step, plan, estimated] = plans[d];
    const MemoryCost none =
        plan_of(step.problem, retain_all(step.problem), std::numeric_limits<std::int64_t>::max())->cost;
    const EvictedValues evicted = evicted_by(step.problem, plan.plan);
    log_info(fmt::format(
        "memory plan{} by {}: {} swapped, {} computed again; live peak {:.1f} MB, {:.1f} MB without; predicted "
        "computation {:.2f} ms per step, {:.2f} ms without, {:.2f} ms of it waiting",
        number_of(d, plans, s), s.memory_plan.empty() ? "mu-two+" : s.memory_plan,
        counted(std::ssize(evicted.swapped), "activation"), evicted.recomputed.size(),
        mb(plan.cost.peak_bytes), mb(none.peak_bytes), plan.cost.time_ms, none.time_ms, plan.cost.stall_ms));
    if (s.profile && estimated > 0)
      log_warning(fmt::format("memory plan{}: the profile has no times of {}, which are estimated",
                              number_of(d, plans, s), counted(estimated, "kernel")));
  }
  const bool could_copy =
      !engine::contains(std::vector<std::string>{"none", "checkpoint", "checkmate", "hfta"}, s.memory_plan);
  if (plans.empty() || plans[0].step.problem.can_copy() || !could_copy) return;
  if (s.copy_link.bytes_per_ms > 0)
    log_warning("nothing is swapped: the plan would keep more on the host than --host-budget");
  else
    log_info(
        "nothing is swapped: on a CPU that saves no memory; with --copy-link the host plays the memory of another "
        "device");
}

void say_partitions(const std::vector<PartitionVerdict>& verdicts, bool all) {
  if (!all) {
    log_info(fmt::format("{} of {} of the models are within the memory budget",
                         std::ranges::count(verdicts, std::string(), &PartitionVerdict::why_not),
                         counted(std::ssize(verdicts), "partition")));
    return;
  }
  fmt::print("{:<28} {:>10} {:>20}\n", "partition", "peak MB", "ms for all models");
  for (const PartitionVerdict& v : verdicts)
    if (v.why_not.empty())
      fmt::print("{:<28} {:>10.1f} {:>20.2f}\n", engine::to_string(v.partition), mb(v.peak_bytes), v.ms);
    else
      fmt::print("{:<28} {}\n", engine::to_string(v.partition), v.why_not);
}

void explain_memory_plans(const std::vector<DevicePlan>& plans, const Strategy& s) {
  for (std::size_t d = 0; d < plans.size(); ++d) {
    const auto& [step, plan, estimated] = plans[d];
    auto verdicts = explain(step.problem, plan.plan);
    const auto bytes = [&](const ValueVerdict& v) {
      return step.problem.values[static_cast<std::size_t>(v.value)].bytes;
    };
    std::ranges::stable_sort(verdicts, std::greater<>(), bytes);
    if (plans.size() > 1) fmt::print("memory plan{}\n", number_of(d, plans, s));
    fmt::print("{:<44} {:>12} {:>11} {:>9} {:>12}  {:<15} {:>9}\n", "activation of", "bytes", "inactive ms",
               "swap ms", "recompute ms", "decision", "stall ms");
    for (const ValueVerdict& v : verdicts)
      fmt::print("{:<44} {:>12} {:>11.3f} {:>9} {:>12}  {:<15} {:>9}\n", v.made_by, bytes(v), v.rest_ms,
                 ms_or_none(v.swap_ms), ms_or_none(v.recompute_ms), decision(v), ms_or_none(v.stall_ms));
  }
}

}  // namespace tandem::apps
