#include <tandem/train/all_reduce_report.h>

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <tandem/core/base/error.h>
#include <tandem/core/base/json_input.h>

namespace tandem {
namespace {

using engine::JsonInput;

constexpr int kMost = 1'000'000;  // ranks, threads
constexpr int kMostDevices = 1000;

// As --link takes it; a file has no more digits.
std::string text_of(const LinkModel& link) { return link == LinkModel() ? "" : to_string(link); }

// What a run adds to the profile of its first device.
JsonInput run_of(const std::string& file) {
  const JsonInput run =
      JsonInput::parse(fmt::format("'{}'", file), engine::read_text("profile", file))["run"];
  if (!run.present())
    throw Error(fmt::format("'{}' is a profile, but no training run measured it: it has no \"run\"", file));
  return run;
}

}  // namespace

std::string all_reduce_file(const std::string& file, std::size_t device) {
  if (device == 0) return file;
  std::filesystem::path path(file);
  return path
      .replace_filename(fmt::format("{}-{}{}", path.stem().string(), device, path.extension().string()))
      .string();
}

std::string to_json(const AllReduceReport& report, std::size_t device) {
  const AllReduceKey& key = report.key;
  const DeviceAllReduces& d = report.devices.at(device);
  nlohmann::ordered_json run{{"ranks", key.ranks},
                             {"transport", key.transport},
                             {"machines", key.machines},
                             {"threads", key.threads},
                             {"link", text_of(key.link)},
                             {"collective", to_string(key.collective)},
                             {"settings", key.settings},
                             {"devices", report.devices.size()},
                             {"policy", d.plan.policy},
                             {"comm_threads", d.profile.comm_threads},
                             {"measured_backward_ms", d.measured_ms},
                             {"error_of_fit", d.error_of_fit}};
  for (const auto& [policy, ms] : d.predicted) run["predicted_backward_ms"][policy] = ms;
  for (const AllReduceGroup& g : d.plan.groups) {
    nlohmann::ordered_json group{
        {"first_layer", g.first_layer}, {"last_layer", g.last_layer}, {"threads", g.rates.threads}};
    if (g.earliest_ms > 0) group["earliest_ms"] = g.earliest_ms;
    run["groups"].push_back(group);
  }
  return to_json(d.profile, run.dump());
}

bool holds_all_reduces(const std::string& file) {
  return JsonInput::parse(fmt::format("'{}'", file), engine::read_text("plan", file))["layers"].present();
}

AllReduceReport read_all_reduces(const std::string& file) {
  const JsonInput run = run_of(file);
  AllReduceReport report;
  AllReduceKey& key = report.key;
  key.ranks = run["ranks"].required().integer(1, 1, kMost);
  key.transport = run["transport"].text();
  key.machines = run["machines"].text();
  key.threads = run["threads"].required().integer(1, 1, kMost);
  try {
    if (const std::string link = run["link"].text(); !link.empty()) key.link = parse_link(link);
    if (const std::string collective = run["collective"].text(); !collective.empty())
      key.collective = parse_collective(collective);
  } catch (const Error& e) {
    const std::string what = e.what(), name = fmt::format("'{}'", file);
    throw Error(what.starts_with(name) ? what : fmt::format("{}: \"run\": {}", name, what));
  }
  for (const auto& [name, value] : run["settings"].entries()) key.settings.emplace(name, value.text());
  const JsonInput devices = run[run["stages"].present() ? "stages" : "devices"];  // older files have stages
  for (std::size_t d = 0; d < static_cast<std::size_t>(devices.integer(1, 1, kMostDevices)); ++d) {
    // A device may have no gradients to reduce; then it has no file.
    const std::string part = all_reduce_file(file, d);
    AllReduceProfile& profile = report.devices.emplace_back().profile;
    std::error_code none;
    if (d == 0 || std::filesystem::exists(part, none)) profile = read_all_reduce_profile(part);
    key.layers.push_back(profile.layers);
  }
  key.batch_size = report.devices[0].profile.batch_size;
  return report;
}

}  // namespace tandem
