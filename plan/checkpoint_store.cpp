#include <tandem/plan/checkpoint_store.h>

#include <cmath>
#include <filesystem>

#include <fmt/format.h>

#include <tandem/core/checksum.h>
#include <tandem/core/error.h>
#include <tandem/plan/checkpoint_manifest.h>

namespace tandem {
namespace {

namespace fs = std::filesystem;
constexpr const char* kUnfinished = ".tmp";

// Makes a directory and those it is in, each known to the disk.
void make_directories(Files& files, const fs::path& path) {
  if (path.empty() || fs::is_directory(path)) return;
  make_directories(files, path.parent_path());
  make_directory(files, path.string());
  sync_directory(files, path.has_parent_path() ? path.parent_path().string() : ".");
}

// Whole, as far as sizes tell.
std::optional<Checkpoint> seems_whole(const std::string& path) {
  try {
    return read_checkpoint(path, CheckpointCheck::sizes);
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

CheckpointStore::CheckpointStore(std::string directory, Retention retention, Files& files)
    : directory_(std::move(directory)), retention_(retention), files_(files) {
  if (retention.last < 2 || retention.every < 0)
    throw Error(fmt::format(
        "a store that keeps the last {} checkpoints and those of every {} steps: it must keep 2 at "
        "least, and the steps cannot be negative",
        retention.last, retention.every));
  make_directories(files_, directory_);
  std::vector<std::string> unfinished;
  for (const auto& entry : fs::directory_iterator(directory_))
    if (const std::string name = entry.path().filename().string();
        entry.is_directory() && name.starts_with("step-") && name.ends_with(kUnfinished))
      unfinished.push_back(entry.path().string());
  for (const std::string& name : unfinished) remove_directory(files_, name);
}

std::string CheckpointStore::path(std::int64_t step) const {
  return (fs::path(directory_) / fmt::format("step-{}", step)).string();
}

Checkpoint CheckpointStore::save(std::int64_t step, const std::vector<CheckpointFile>& files,
                                 std::optional<double> score) {
  const std::string whole = path(step), unfinished = whole + kUnfinished;
  if (score && !std::isfinite(*score)) throw Error(fmt::format("the score of '{}' is {}", whole, *score));
  if (fs::exists(whole)) {
    std::vector<std::string> damaged;
    try {
      read_checkpoint(whole, CheckpointCheck::contents);
    } catch (const Error& e) {
      damaged.emplace_back(e.what());
    }
    if (damaged.empty()) throw Error(fmt::format("there is a checkpoint '{}' already", whole));
    remove(whole);
  }
  try {
    remove_directory(files_, unfinished);
    write(unfinished, step, files, score);
    rename_durably(files_, unfinished, whole);
  } catch (...) {
    try {
      remove_directory(files_, unfinished);
    } catch (const Error&) {  // the next store does
    }
    throw;
  }
  const Checkpoint saved = read_checkpoint(whole, CheckpointCheck::sizes);
  try {
    prune();
  } catch (const Error& e) {
    throw Error(
        fmt::format("'{}' is saved, but an older checkpoint could not be removed: {}", whole, e.what()));
  }
  return saved;
}

void CheckpointStore::write(const std::string& path, std::int64_t step,
                            const std::vector<CheckpointFile>& files, std::optional<double> score) {
  CheckpointManifest manifest{step, score, {}};
  make_directory(files_, path);
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
  write_durably(files_, path + "/" + kManifest, [&](const Sink& sink) {
    const std::string text = to_json(manifest);
    sink(std::as_bytes(std::span(text)));
  });
  sync_directory(files_, path);
}

// Under another name first, so that what is half removed is not taken for a checkpoint.
void CheckpointStore::remove(const std::string& path) {
  remove_directory(files_, path + kUnfinished);
  rename_durably(files_, path, path + kUnfinished);
  remove_directory(files_, path + kUnfinished);
}

// Damaged ones do not count, and stay for whoever wants to look.
void CheckpointStore::prune() {
  std::vector<Checkpoint> all;
  for (const std::int64_t step : checkpoint_steps(directory_))
    if (auto checkpoint = seems_whole(path(step))) all.push_back(std::move(*checkpoint));
  const Checkpoint* best = nullptr;
  for (const Checkpoint& c : all)
    if (c.score && (!best || *c.score >= *best->score)) best = &c;
  for (auto c = all.begin(); all.end() - c > retention_.last; ++c) {
    const bool kept_for_good = retention_.every > 0 && c->step % retention_.every == 0;
    if (!kept_for_good && !(retention_.best && &*c == best)) remove(c->path);
  }
}

}  // namespace tandem
