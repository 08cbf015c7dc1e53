#include <tandem/plan/checkpoint_manifest.h>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <tandem/core/error.h>
#include <tandem/core/json_input.h>

namespace tandem {
namespace {

constexpr const char* kFormat = "tandem checkpoint 1";
constexpr double kAnyScore = 1e300;

bool plain(const std::string& name) {
  return !name.empty() && name.front() != '.' && name.find('/') == std::string::npos && name != kManifest;
}

}  // namespace

std::string to_json(const CheckpointManifest& manifest) {
  nlohmann::ordered_json j{{"format", kFormat}, {"step", manifest.step}};
  if (manifest.score) j["score"] = *manifest.score;
  j["files"] = nlohmann::ordered_json::array();
  for (const auto& f : manifest.files)
    j["files"].push_back({{"name", f.name}, {"bytes", f.bytes}, {"xxh3", f.xxh3}});
  return j.dump(1) + "\n";
}

CheckpointManifest manifest_from_json(const std::string& file, const std::string& text) {
  const JsonInput json = JsonInput::parse(fmt::format("'{}'", file), text);
  if (const std::string format = json["format"].required().text(); format != kFormat)
    throw Error(
        fmt::format("'{}' is of the format '{}'; this version of Tandem reads '{}'", file, format, kFormat));
  CheckpointManifest manifest;
  manifest.step = json["step"].required().integer<std::int64_t>(0, 0);
  if (json["score"].present()) manifest.score = json["score"].number(0, -kAnyScore, kAnyScore);
  for (const JsonInput& f : json["files"].required().items()) {
    manifest.files.push_back({f["name"].required().text(), f["bytes"].required().integer<std::int64_t>(0, 0),
                              f["xxh3"].required().text()});
    if (!plain(manifest.files.back().name))
      throw Error(fmt::format("'{}': '{}' is no name of a file in it", file, manifest.files.back().name));
  }
  if (to_json(manifest) != text) throw Error(fmt::format("'{}' is not as it was written", file));
  return manifest;
}

}  // namespace tandem
