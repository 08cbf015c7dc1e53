#include <tandem/plan/stage_profile.h>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <tandem/core/base/error.h>
#include <tandem/core/base/json_input.h>

namespace tandem {
namespace {

using engine::JsonInput;

constexpr double kLeastMs = 1e-6, kMostMs = 1e10, kMostBytes = 1e12, kLeastRate = 1e-6, kMostRate = 1e15;
constexpr std::size_t kMostStages = 200;
constexpr int kMostReplicas = 1000;

StageCost stage_of(const JsonInput& j) {
  j.require_keys({"name", "forward_ms", "backward_ms", "activation_bytes", "weight_bytes", "resident_bytes",
                  "update_ms", "replicas"});
  StageCost stage{j["forward_ms"].required().number(0, kLeastMs, kMostMs),
                  j["backward_ms"].required().number(0, kLeastMs, kMostMs),
                  j["activation_bytes"].required().number(0, 0, kMostBytes),
                  j["weight_bytes"].required().number(0, 0, kMostBytes)};
  if (const JsonInput resident = j["resident_bytes"]; resident.present())
    stage.resident_bytes = resident.number(0, 0, kMostBytes);
  stage.update_ms = j["update_ms"].number(0, 0, kMostMs);
  stage.replicas = j["replicas"].integer(1, 1, kMostReplicas);
  return stage;
}

StageLink link_of(const JsonInput& j) {
  j.require_keys({"bytes_per_ms", "latency_ms", "duplex"});
  return {j["bytes_per_ms"].required().number(1, kLeastRate, kMostRate),
          j["latency_ms"].number(0, 0, kMostMs), j["duplex"].flag(true)};
}

}  // namespace

double StageProfile::batch_ms() const {
  double ms = 0;
  for (const StageCost& s : stages) ms += s.total_ms();
  return ms;
}

int StageProfile::devices() const {
  int devices = 0;
  for (const StageCost& s : stages) devices += s.replicas;
  return devices;
}

std::string to_json(const StageProfile& profile) {
  using nlohmann::ordered_json;
  ordered_json stages = ordered_json::array();
  for (const StageCost& s : profile.stages) {
    stages.push_back({{"forward_ms", s.forward_ms},
                      {"backward_ms", s.backward_ms},
                      {"activation_bytes", s.activation_bytes},
                      {"weight_bytes", s.weight_bytes}});
    if (s.resident_bytes) stages.back()["resident_bytes"] = *s.resident_bytes;
    if (s.update_ms > 0) stages.back()["update_ms"] = s.update_ms;
    if (s.replicas > 1) stages.back()["replicas"] = s.replicas;
  }
  ordered_json j{{"stages", stages}, {"corun", profile.corun}};
  if (profile.link.bytes_per_ms > 0 || profile.link.latency_ms > 0)
    j["link"] = {{"bytes_per_ms", profile.link.bytes_per_ms > 0 ? profile.link.bytes_per_ms : kMostRate},
                 {"latency_ms", profile.link.latency_ms},
                 {"duplex", profile.link.duplex}};
  if (const auto& uncut = profile.uncut) {
    j["single_ms"] = uncut->single_ms;
    if (uncut->data_compute_factor) j["data_compute_factor"] = *uncut->data_compute_factor;
    j["sync_bytes"] = uncut->sync_bytes;
  }
  return j.dump(2);
}

StageProfile stage_profile_of(const std::string& what, const std::string& text) {
  const JsonInput j = JsonInput::parse(what, text);
  if (j["layers"].present() && !j["stages"].present())
    throw Error(what +
                " is of layers, which 'tandem plan pipeline' cuts into stages: here it must be of stages");
  j.require_keys({"stages", "link", "corun", "single_ms", "data_compute_factor", "sync_bytes"});
  StageProfile profile;
  for (const JsonInput& stage : j["stages"].required().items()) profile.stages.push_back(stage_of(stage));
  if (profile.stages.empty() || profile.stages.size() > kMostStages)
    throw Error(fmt::format("{}: \"stages\" has {}; there must be 1 to {}", what, profile.stages.size(),
                            kMostStages));
  if (j["link"].present()) profile.link = link_of(j["link"]);
  profile.corun = j["corun"].number(1, 0.5, 1);
  const JsonInput factor = j["data_compute_factor"], sync = j["sync_bytes"];
  if (j["single_ms"].present()) {
    profile.uncut = UncutCost{.single_ms = j["single_ms"].number(0, kLeastMs, kMostMs),
                              .sync_bytes = sync.required().number(0, 0, kMostBytes)};
    if (factor.present()) profile.uncut->data_compute_factor = factor.number(1, kLeastRate, kMostRate);
  } else if (factor.present() || sync.present()) {
    throw Error(what + ": \"data_compute_factor\" and \"sync_bytes\" need \"single_ms\"");
  }
  return profile;
}

StageProfile read_stage_profile(const std::string& file) {
  return stage_profile_of(fmt::format("profile '{}'", file), engine::read_text("profile", file));
}

}  // namespace tandem
