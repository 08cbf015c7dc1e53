#include "resume.h"

#include <filesystem>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tandem/core/base/checksum.h>
#include <tandem/core/base/error.h>
#include <tandem/core/base/files.h>

namespace tandem::apps {
using namespace engine;
namespace {

namespace fs = std::filesystem;

// Begins from the newest intact checkpoint in a directory.
Start newest_in(const std::string& directory) {
  Start start;
  start.checkpoint = newest_checkpoint(directory, start.damaged);
  if (!start.checkpoint && !start.damaged.empty())
    throw Error(fmt::format("--resume: no checkpoint in '{}' is intact: {}", directory,
                            fmt::join(start.damaged, "; ")));
  return start;
}

bool has_summary(const std::string& run_directory) {
  std::error_code none;
  return fs::exists(fs::path(run_directory) / "summary.json", none);
}

Start in_output(const TrainOptions& o) {
  Start start = newest_in(checkpoints_of(o.output));
  start.ended = start.checkpoint && has_summary(o.output);
  start.in_place = start.checkpoint || !has_summary(o.output);
  return start;
}

// Begins from what the path names.
Start named(const std::string& path) {
  Start start;
  std::error_code none;
  if (fs::is_regular_file(path, none) && path.ends_with(".safetensors"))
    start.weights = path, start.digest = checksum_of(InputFile("file of weights", path));
  else if (fs::exists(fs::path(path) / "manifest.json", none))
    start.checkpoint = read_checkpoint(path, CheckpointCheck::contents);
  else
    for (const std::string& directory : {path, checkpoints_of(path)})
      if (!start.checkpoint) start = newest_in(directory);
  return start;
}

// ", but 'sweep/batch-32' has some": the first run in a directory, such as that of a sweep; empty if there is
// none.
std::string run_below(const std::string& directory) {
  std::error_code none;
  if (!fs::is_directory(directory, none)) return "";
  for (const std::string& name : names_in(directory))
    if (const std::string run = (fs::path(directory) / name).string();
        fs::is_directory(checkpoints_of(run), none) && !checkpoint_steps(checkpoints_of(run)).empty())
      return fmt::format(", but '{}' has some", run);
  return "";
}

}  // namespace

std::string checkpoints_of(const std::string& run_directory) {
  return (fs::path(run_directory) / "checkpoints").string();
}

Start find_start(const TrainOptions& o) {
  if (o.resume.empty()) return {};
  Start start = o.resume == "auto" ? in_output(o) : named(o.resume);
  if (!start.checkpoint && start.weights.empty() && (o.resume != "auto" || o.evaluate))
    throw Error(fmt::format(
        "--resume '{}': there is no checkpoint{}; give a directory step-N, a directory of checkpoints, "
        "a run's --output, a file of weights (.safetensors), or auto",
        o.resume, run_below(o.resume == "auto" ? o.output : o.resume)));
  if (start.checkpoint) start.digest = start.checkpoint->digest;
  if (o.resume == "auto" || o.output.empty() || !start.checkpoint || o.evaluate) return start;
  std::error_code none;
  start.in_place =
      fs::equivalent(fs::path(start.checkpoint->path).parent_path(), checkpoints_of(o.output), none);
  if (!start.in_place) return start;
  start.ended = has_summary(o.output);
  if (const auto newest = newest_in(checkpoints_of(o.output)).checkpoint;
      newest && newest->step > start.checkpoint->step)
    throw Error(fmt::format(
        "--resume '{}': --output holds a newer checkpoint of this run, '{}'; choose another --output, "
        "or --resume auto",
        o.resume, newest->path));
  if (o.force) throw Error("--force would replace the run that --resume continues; leave out one of the two");
  return start;
}

}  // namespace tandem::apps
