#include <tandem/train/checkpoint_store.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <regex>
#include <span>
#include <utility>

#include <fmt/format.h>

#include <tandem/core/base/checksum.h>
#include <tandem/core/base/error.h>
#include <tandem/train/checkpoint_manifest.h>
#include <tandem/train/train_checkpoint.h>

namespace tandem {
using namespace engine;
namespace {

namespace fs = std::filesystem;
const std::string kUnfinished = kUnfinishedFile, kGivenUp = ".tandem-old";

// No reader uses such a directory, so it can be removed at any time.
bool is_leftover(const std::string& name) {
  return std::ranges::any_of(std::vector{kUnfinished, kGivenUp}, [&](const std::string& ending) {
    return name.ends_with(ending) && checkpoint_step(name.substr(0, name.size() - ending.size()));
  });
}

// Whether train_checkpoint.h saves a file of this name.
bool names_file_of_checkpoint(const std::string& name) {
  static const std::regex weights(R"(model(-\d+)?\.safetensors)");
  return name == kManifest || name == kRunFile || name == "optimizer.safetensors" ||
         std::regex_match(name, weights);
}

// What a manifest begins with. In an unfinished checkpoint it is the whole file.
const std::string kBegin = "{\n \"format\": \"tandem checkpoint";

// Returns the first bytes of a file, at most so many.
std::string head_of(const fs::path& file, std::size_t bytes) {
  std::string head(bytes, '\0');
  std::ifstream in(file);
  in.read(head.data(), std::ssize(head));
  head.resize(static_cast<std::size_t>(in.gcount()));
  return head;
}

// Whether train_checkpoint.h wrote the file, by its first words.
bool is_run_file(const fs::path& file) {
  static const std::regex begin(R"(\{"batch": \d+,\n "losses": \{"batches": \[[^]*)");
  return std::regex_match(head_of(file, 100), begin);
}

std::optional<Checkpoint> whole_checkpoint(const std::string& path, CheckpointCheck check) try {
  return read_checkpoint(path, check);
} catch (const Error&) {
  return std::nullopt;
}

// Throws before anything is written.
void check_request(const std::string& path, std::int64_t step, const std::vector<CheckpointFile>& files,
                   std::optional<double> score) {
  if (step < 0) throw Error(fmt::format("a checkpoint of step {}; steps count from 0", step));
  if (score && !std::isfinite(*score))
    throw Error(fmt::format("the score of '{}' is {}; it must be finite", path, *score));
  CheckpointManifest manifest{step, score, {}};
  for (const CheckpointFile& f : files) manifest.files.push_back({f.name, 0, ""});
  check_names(manifest);
}

}  // namespace

bool names_checkpoint(const std::string& name) { return checkpoint_step(name) || is_leftover(name); }

bool is_own_checkpoint(const std::string& path) {
  std::error_code none;
  if (!fs::is_directory(fs::symlink_status(path, none))) return false;
  if (fs::is_empty(path, none)) return true;
  const std::string head = head_of(fs::path(path) / kManifest, kBegin.size());
  if (head == kBegin) return true;
  // One whose manifest is damaged has the files of a run.
  const std::vector<std::string> names = names_in(path);
  const bool has_just_begun = names == std::vector<std::string>{kManifest} && kBegin.starts_with(head);
  return has_just_begun ||
         (std::ranges::all_of(names, names_file_of_checkpoint) && is_run_file(fs::path(path) / kRunFile));
}

std::string foreign_entry(const std::string& path) {
  const std::string file = (fs::path(path) / kManifest).string();
  std::ifstream in(file);
  const std::string text(std::istreambuf_iterator<char>(in), {});
  const bool is_unfinished = text == kBegin;
  std::vector<std::string> own;
  try {
    for (const auto& f : manifest_from_json(file, text).files) own.push_back(f.name);
  } catch (const Error&) {  // it is unfinished or damaged
  }
  std::error_code none;
  for (const std::string& name : names_in(path)) {
    const fs::file_status status = fs::symlink_status(fs::path(path) / name, none);
    const std::string finished = finished_name(name), whole = finished.empty() ? name : finished;
    const bool is_own =
        is_unfinished || whole == kManifest ||
        (own.empty() ? names_file_of_checkpoint(whole) : std::ranges::find(own, whole) != own.end());
    if (!fs::is_regular_file(status) || !is_own) return name;
  }
  return "";
}

std::string changed_file(const std::string& path) {
  const std::string manifest = (fs::path(path) / kManifest).string();
  std::ifstream in(manifest);
  const std::string text(std::istreambuf_iterator<char>(in), {});
  const std::vector<std::string> names = names_in(path);
  const bool has_others = std::ranges::any_of(names, [](const auto& name) { return name != kManifest; });
  if (!has_others || (!text.empty() && kBegin.starts_with(text))) return "";  // it is unfinished
  CheckpointManifest saved;
  try {
    saved = manifest_from_json(manifest, text);
  } catch (const Error&) {
    return kManifest;
  }
  std::error_code none;
  for (const CheckpointManifest::File& f : saved.files) {
    const std::string file = (fs::path(path) / f.name).string();
    if (!fs::is_regular_file(file, none)) continue;
    if (static_cast<std::int64_t>(fs::file_size(file, none)) != f.bytes ||
        checksum_of(InputFile("checkpoint file", file)) != f.xxh3)
      return f.name;
  }
  return "";
}

// The manifest last: by it one knows a directory of which a part is removed.
void remove_checkpoint(Files& files, const std::string& path) {
  if (const std::string entry = foreign_entry(path); !entry.empty())
    throw Error(fmt::format("'{}' holds {}, which is no checkpoint's: it stays; move it away", path, entry));
  std::error_code none;
  const bool is_directory = fs::is_directory(fs::symlink_status(path, none));
  if (is_directory)
    for (const std::string& name : names_in(path))
      if (const auto file = fs::path(path) / name; name != kManifest && !fs::is_directory(file, none))
        remove_file(files, file.string());
  remove_directory(files, path);
}

CheckpointStore::CheckpointStore(std::string directory, Retention retention, Files& files)
    : directory_(std::move(directory)), retention_(retention), files_(files) {
  if (retention.last < 2 || retention.every < 0)
    throw Error(fmt::format(
        "a store that keeps the last {} checkpoints and those of every {} steps: it must keep at least "
        "2, and the steps cannot be negative",
        retention.last, retention.every));
  make_directories(files_, directory_);
  for (const std::string& name : names_in(directory_))
    if (const auto left = (fs::path(directory_) / name).string();
        is_leftover(name) && is_own_checkpoint(left) && foreign_entry(left).empty())
      remove_checkpoint(files_, left);
}

std::string CheckpointStore::path(std::int64_t step) const {
  return (fs::path(directory_) / checkpoint_name(step)).string();
}

Checkpoint CheckpointStore::save(std::int64_t step, const std::vector<CheckpointFile>& files,
                                 std::optional<double> score) {
  const std::string whole = path(step), unfinished = whole + kUnfinished;
  check_request(whole, step, files, score);
  if (whole_checkpoint(whole, CheckpointCheck::contents))
    throw Error(fmt::format("there is a checkpoint '{}' already", whole));
  for (const std::int64_t later : checkpoint_steps(directory_))
    if (later > step && is_whole(later))
      throw Error(fmt::format(
          "'{}' would not be the newest checkpoint, because there is '{}': call remove_after({}) first, or save "
          "in another directory",
          whole, path(later), step));
  for (const std::string& path : {whole, unfinished, whole + kGivenUp})
    if (fs::exists(fs::symlink_status(path)) && (!is_own_checkpoint(path) || !foreign_entry(path).empty()))
      throw Error(
          fmt::format("'{}' is no checkpoint, or holds files of others: it stays, and none can be saved in "
                      "its place",
                      path));
  Checkpoint saved;
  try {
    remove_checkpoint(files_, unfinished);
    saved = write(unfinished, step, files, score);
    replace(unfinished, whole);
  } catch (...) {
    try {
      remove_checkpoint(files_, unfinished);
    } catch (const std::exception&) {  // the next store removes it
    }
    throw;
  }
  saved.path = whole;
  try {
    read_.insert(step);
    prune();
  } catch (const std::exception& e) {
    throw Error(
        fmt::format("'{}' is saved, but an older checkpoint could not be removed: {}", whole, e.what()));
  }
  return saved;
}

Checkpoint CheckpointStore::write(const std::string& path, std::int64_t step,
                                  const std::vector<CheckpointFile>& files, std::optional<double> score) {
  CheckpointManifest manifest{step, score, {}};
  make_directory(files_, path);
  write_durably(files_, path + "/" + kManifest,
                [](const Sink& sink) { sink(std::as_bytes(std::span(kBegin))); });
  for (const CheckpointFile& f : files) {
    CheckpointManifest::File written{f.name, 0, ""};
    Checksum sum;
    write_durably(files_, path + "/" + f.name, [&](const Sink& sink) {
      f.write([&](std::span<const std::byte> data) {
        sum.update(data);
        written.bytes += std::ssize(data);
        sink(data);
      });
    });
    written.xxh3 = sum.hex();
    manifest.files.push_back(std::move(written));
  }
  const std::string text = to_json(manifest);
  replace_durably(files_, path + "/" + kManifest,
                  [&](const Sink& sink) { sink(std::as_bytes(std::span(text))); });
  sync_directory(files_, path);
  return {path, step, score, checksum_of(text)};
}

// A damaged checkpoint stays until there is one to take its place.
void CheckpointStore::replace(const std::string& unfinished, const std::string& whole) {
  const bool damaged = fs::exists(fs::symlink_status(whole));
  if (damaged) {
    remove_checkpoint(files_, whole + kGivenUp);
    rename_durably(files_, whole, whole + kGivenUp);
  }
  rename_durably(files_, unfinished, whole);
  if (damaged) remove_checkpoint(files_, whole + kGivenUp);
}

// Checks all before it changes anything, and renames first, so that a half-removed directory is not taken for
// a checkpoint.
void CheckpointStore::remove(std::int64_t step) {
  const std::string whole = path(step), given_up = whole + kGivenUp;
  if (is_shared(step))
    throw Error(
        fmt::format("'{}' or '{}' holds files of others: both stay; move these files away", whole, given_up));
  read_.erase(step);
  remove_checkpoint(files_, given_up);
  rename_durably(files_, whole, given_up);
  remove_checkpoint(files_, given_up);
}

// Whether somebody keeps files in a checkpoint, or where it would be renamed to.
bool CheckpointStore::is_shared(std::int64_t step) const {
  return !foreign_entry(path(step)).empty() || !foreign_entry(path(step) + kGivenUp).empty();
}

void CheckpointStore::remove_after(std::int64_t step) {
  std::vector<std::int64_t> steps = checkpoint_steps(directory_);
  for (auto later = steps.rbegin(); later != steps.rend() && *later > step; ++later) remove(*later);
}

// Reads each checkpoint once; later calls compare only the sizes of its files.
bool CheckpointStore::is_whole(std::int64_t step) {
  const bool known = read_.contains(step);
  if (!whole_checkpoint(path(step), known ? CheckpointCheck::sizes : CheckpointCheck::contents)) return false;
  read_.insert(step);
  return true;
}

std::vector<std::int64_t> CheckpointStore::newest_whole() {
  std::vector<std::int64_t> steps = checkpoint_steps(directory_), newest;
  for (auto step = steps.rbegin(); step != steps.rend() && std::ssize(newest) < retention_.last; ++step)
    if (is_whole(*step)) newest.push_back(*step);
  return newest;
}

std::optional<std::int64_t> CheckpointStore::best_whole() {
  std::vector<std::pair<double, std::int64_t>> scored;
  for (const std::int64_t step : checkpoint_steps(directory_))
    if (const auto c = whole_checkpoint(path(step), CheckpointCheck::sizes); c && c->score)
      scored.emplace_back(*c->score, step);
  std::ranges::sort(scored, std::ranges::greater());
  const auto best = std::ranges::find_if(scored, [&](const auto& s) { return is_whole(s.second); });
  return best == scored.end() ? std::nullopt : std::optional(best->second);
}

// Removes only checkpoints older than all that a run can fall back to. Damaged ones stay for inspection, and
// so do those that somebody has changed.
void CheckpointStore::prune() {
  const std::vector<std::int64_t> newest = newest_whole();
  if (std::ssize(newest) < retention_.last) return;
  const auto best = retention_.best ? best_whole() : std::nullopt;
  for (const std::int64_t step : checkpoint_steps(directory_)) {
    if (step >= newest.back()) break;
    const bool for_good = retention_.every > 0 && step % retention_.every == 0;
    if (!for_good && step != best && !is_shared(step) &&
        whole_checkpoint(path(step), CheckpointCheck::contents))
      remove(step);
  }
}

}  // namespace tandem
