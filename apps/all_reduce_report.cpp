#include "all_reduce_report.h"

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tandem/core/base/error.h>

#include "log.h"

namespace tandem::apps {
using namespace engine;

void say_all_reduces(const AllReduceReport& report) {
  for (const std::string& warning : report.warnings) log_warning(warning);
  if (!report.reason.empty()) log_info("all-reduces are planned again: " + report.reason);
  for (std::size_t d = 0; d < report.devices.size(); ++d) {
    const DeviceAllReduces& device = report.devices[d];
    if (device.plan.groups.empty()) continue;
    std::vector<int> threads;
    std::vector<std::string> others;
    for (const AllReduceGroup& g : device.plan.groups) threads.push_back(g.rates.threads);
    const bool alike = std::ranges::all_of(threads, [&](int n) { return n == threads[0]; });
    const std::string by_threads =
        alike ? counted(threads[0], "thread") + " each" : fmt::format("{} threads", fmt::join(threads, ", "));
    for (std::size_t i = 1; i < device.predicted.size(); ++i)
      others.push_back(fmt::format("{} {:.2f}", device.predicted[i].first, device.predicted[i].second));
    log_info(fmt::format(
        "all-reduces{}, planned by {} {}: {} of {}, by {}; backward {:.2f} ms, predicted {:.2f} (for some others: {})",
        report.devices.size() > 1 ? fmt::format(" of device {}", d) : "", device.plan.policy,
        report.is_saved ? "from a saved measurement" : "after " + counted(report.batches, "batch"),
        counted(std::ssize(device.plan.groups), "group"),
        counted(std::ssize(device.profile.layers), "gradient"), by_threads, device.measured_ms,
        device.predicted[0].second, fmt::join(others, ", ")));
  }
}

}  // namespace tandem::apps
