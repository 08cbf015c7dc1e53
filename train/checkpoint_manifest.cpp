#include <tandem/train/checkpoint_manifest.h>

#include <algorithm>
#include <cctype>
#include <set>

#include <fmt/format.h>

#include <tandem/core/base/checksum.h>
#include <tandem/core/base/error.h>
#include <tandem/core/base/json_input.h>

namespace tandem {
using namespace engine;
namespace {

constexpr const char* kFormat = "tandem checkpoint 2";
constexpr double kAnyScore = 1e300;

// Such a name stays in its directory, and JSON needs no escapes for it.
bool plain(const std::string& name) {
  return !name.empty() && name.front() != '.' && name != kManifest &&
         std::ranges::all_of(
             name, [](unsigned char c) { return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.'; });
}

}  // namespace

void check_names(const CheckpointManifest& manifest) {
  std::set<std::string> names;
  for (const auto& f : manifest.files) {
    if (!plain(f.name)) throw Error(fmt::format("'{}' cannot be the name of a file in a checkpoint", f.name));
    if (!names.insert(f.name).second)
      throw Error(fmt::format("a checkpoint has two files called '{}'", f.name));
  }
}

// Written by hand, because nlohmann's values end the process if there is no memory.
std::string to_json(const CheckpointManifest& manifest) {
  std::string files;
  for (const auto& f : manifest.files)
    files += fmt::format("{}\n  {{\"name\": \"{}\", \"bytes\": {}, \"xxh3\": \"{}\"}}",
                         files.empty() ? "" : ",", f.name, f.bytes, f.xxh3);
  const std::string text =
      fmt::format("{{\n \"format\": \"{}\",\n \"step\": {},{}\n \"files\": [{}\n ]", kFormat, manifest.step,
                  manifest.score ? fmt::format("\n \"score\": {},", *manifest.score) : "", files);
  return fmt::format("{},\n \"xxh3\": \"{}\"\n}}\n", text, checksum_of(text));
}

CheckpointManifest manifest_from_json(const std::string& file, const std::string& text) {
  const JsonInput json = JsonInput::parse(fmt::format("'{}'", file), text);
  if (const std::string format = json["format"].required().text(); format != kFormat)
    throw Error(
        fmt::format("'{}' is of the format '{}'; this version of Tandem reads '{}'", file, format, kFormat));
  CheckpointManifest manifest;
  manifest.step = json["step"].required().integer<std::int64_t>(0, 0);
  if (json["score"].present()) manifest.score = json["score"].number(0, -kAnyScore, kAnyScore);
  for (const JsonInput& f : json["files"].required().items())
    manifest.files.push_back({f["name"].required().text(), f["bytes"].required().integer<std::int64_t>(0, 0),
                              f["xxh3"].required().text()});
  try {
    check_names(manifest);
  } catch (const Error& e) {
    throw Error(fmt::format("'{}': {}", file, e.what()));
  }
  if (to_json(manifest) != text) throw Error(fmt::format("'{}' has changed since it was written", file));
  return manifest;
}

}  // namespace tandem
