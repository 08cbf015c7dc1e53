#include <tandem/train/checkpoint.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <span>

#include <fmt/format.h>

#include <tandem/core/base/checksum.h>
#include <tandem/core/base/error.h>
#include <tandem/core/base/files.h>
#include <tandem/core/base/input_file.h>
#include <tandem/train/checkpoint_manifest.h>

namespace tandem {
using namespace engine;
namespace {

namespace fs = std::filesystem;
constexpr std::int64_t kLargestManifest = 1 << 20;
constexpr std::string_view kPrefix = "step-";

void check_file(const std::string& path, const CheckpointManifest::File& expected, CheckpointCheck check) {
  const InputFile file("checkpoint file", path);
  if (file.size() != expected.bytes)
    throw Error(fmt::format("checkpoint file '{}' has {} bytes, its manifest says {}", path, file.size(),
                            expected.bytes));
  if (check != CheckpointCheck::contents) return;
  if (const std::string sum = checksum_of(file); sum != expected.xxh3)
    throw Error(fmt::format("checkpoint file '{}' is damaged: its checksum is {}, its manifest says {}", path,
                            sum, expected.xxh3));
}

}  // namespace

std::optional<std::int64_t> checkpoint_step(const std::string& name) {
  std::int64_t step = -1;
  if (name.starts_with(kPrefix))
    std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), step);
  return step >= 0 && name == checkpoint_name(step) ? std::optional(step) : std::nullopt;
}

std::string checkpoint_name(std::int64_t step) { return fmt::format("{}{}", kPrefix, step); }

Checkpoint read_checkpoint(const std::string& path, CheckpointCheck check) {
  const InputFile file("checkpoint manifest", (fs::path(path) / kManifest).string());
  if (file.size() > kLargestManifest)
    throw Error(fmt::format("checkpoint manifest '{}' has {} bytes; at most {} are possible", file.path(),
                            file.size(), kLargestManifest));
  std::string text(static_cast<std::size_t>(file.size()), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  const CheckpointManifest manifest = manifest_from_json(file.path(), text);
  const fs::path directory = fs::path(path).has_filename() ? fs::path(path) : fs::path(path).parent_path();
  if (const auto named = checkpoint_step(directory.filename().string()); named && *named != manifest.step)
    throw Error(fmt::format("'{}' is of step {}, but its directory is named after step {}", file.path(),
                            manifest.step, *named));
  for (const auto& f : manifest.files) check_file((directory / f.name).string(), f, check);
  return {directory.string(), manifest.step, manifest.score, checksum_of(text)};
}

std::vector<std::int64_t> checkpoint_steps(const std::string& directory) {
  std::vector<std::int64_t> steps;
  for (const std::string& name : names_in(directory))
    if (const auto step = checkpoint_step(name)) steps.push_back(*step);
  std::ranges::sort(steps);
  return steps;
}

std::optional<Checkpoint> newest_checkpoint(const std::string& directory, std::vector<std::string>& damaged) {
  auto steps = checkpoint_steps(directory);
  std::ranges::reverse(steps);
  for (const std::int64_t step : steps) try {
      return read_checkpoint(directory + "/" + checkpoint_name(step), CheckpointCheck::contents);
    } catch (const Error& e) {
      damaged.emplace_back(e.what());
    }
  return std::nullopt;
}

}  // namespace tandem
