#include "run_directory.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <optional>
#include <regex>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <tandem/core/base/files.h>
#include <tandem/core/base/units.h>
#include <tandem/memory/memory_problem.h>
#include <tandem/plan/plan_file.h>
#include <tandem/train/checkpoint_store.h>

#include "flags.h"
#include "log.h"
#include "made_directories.h"
#include "output_file.h"
#include "own_file.h"
#include "resume.h"

namespace tandem::apps {
using namespace engine;
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// The files of a run, with their kinds (own_file.h).
struct RunFile {
  const char *name, *kind;
  bool is_always_there = false;  ///< so a directory that has one of these holds a run
};
constexpr std::array kFiles{RunFile{"args.json", "args", true},
                            RunFile{"metrics.jsonl", "metrics", true},
                            RunFile{"summary.json", "summary", true},
                            RunFile{"profile.json", "profile", true},
                            RunFile{"program.json", "program", true},
                            RunFile{"config.toml", "config"},
                            RunFile{"plan.json", "plan"},
                            RunFile{"stages.json", "stages"},
                            RunFile{"layers.json", "layers"},
                            RunFile{"summary.csv", "table"},
                            RunFile{"trace.json", "trace"},
                            RunFile{"memory.json", "memory"},
                            RunFile{kAllReduces, "all-reduces"}};
constexpr const char* kCheckpoints = "checkpoints";

// Returns the kind of a file that a run gives this name; empty: no run does. Later devices have numbers.
std::string kind_of(const std::string& name) {
  for (const RunFile& file : kFiles)
    if (name == file.name) return file.kind;
  static const std::regex events(R"(events\.out\.tfevents\..*)"), collectives(R"(collectives-\d+\.jsonl)"),
      memory(R"(memory-\d+\.json)"), all_reduces(R"(all-reduce-\d+\.json)");
  if (std::regex_match(name, events)) return "events";
  if (std::regex_match(name, collectives)) return "collectives";
  if (std::regex_match(name, memory)) return "memory";
  return std::regex_match(name, all_reduces) ? "all-reduces" : "";
}

// 3: "model-3", the directory of a model of a sweep.
std::optional<std::int64_t> number_of_model(const std::string& name) {
  static const std::regex pattern(R"(model-(\d{1,9}))");
  std::smatch found;
  if (!std::regex_match(name, found, pattern)) return std::nullopt;
  return std::stoll(found[1]);
}

json per_model(const std::vector<double>& values) {
  return values.size() == 1 ? json(values[0]) : json(values);
}

// Writes one value per model.
void scalars(EventFile& events, const std::string& tag, std::int64_t step,
             const std::vector<double>& values) {
  for (std::size_t m = 0; m < values.size(); ++m)
    events.scalar(values.size() == 1 ? tag : fmt::format("{}/model_{}", tag, m), step, values[m]);
}

std::shared_ptr<const void> locked(const std::string& directory) {
  auto lock = lock_directory(directory);
  if (!lock)
    throw Error(
        fmt::format("--output '{}': another run is writing there; choose another directory", directory));
  return lock;
}

// Whether a path, which may be empty, is a directory or something below it.
bool lies_in(const std::string& path, const std::string& directory) {
  std::error_code none;
  const fs::path below =
      fs::weakly_canonical(path, none).lexically_relative(fs::weakly_canonical(directory, none));
  return !path.empty() && !below.empty() && *below.begin() != "..";
}

// Whether a kill can have left a file of this name.
bool is_unfinished(const std::string& name) { return !kind_of(finished_name(name)).empty(); }

// Returns the files in a directory that an earlier run wrote, and perhaps only those of one kind. A directory
// that does not exist has none.
std::vector<std::string> own_files(const std::string& directory, const std::string& kind = "") {
  std::vector<std::string> files;
  for (const std::string& name : names_in(directory)) {
    const std::string path = (fs::path(directory) / name).string(), is = kind_of(name);
    if (!is.empty() && (kind.empty() || kind == is) && look_at(path, is) == Found::own) files.push_back(path);
  }
  return files;
}

// Returns a name in a directory that stands in a run's way, because a run would write there, and none wrote
// it; empty if there is none.
std::string foreign_file(const std::string& directory, const TrainOptions& options, bool in_place) {
  std::error_code none;
  for (const std::string& name : names_in(directory)) {
    std::string kind = kind_of(name);
    if (kind == "metrics" && in_place) kind = "metrics begun";  // lines of others stay
    if (kind == "events" && options.tensorboard == 0) continue;
    if (kind == "config" && in_place) continue;  // an edited one stays
    if (kind == "trace" &&
        fs::weakly_canonical(options.trace, none) != fs::weakly_canonical(fs::path(directory) / name, none))
      continue;
    if (!kind.empty() && look_at((fs::path(directory) / name).string(), kind) == Found::foreign) return name;
  }
  const std::string checkpoints = checkpoints_of(directory);
  if (!fs::exists(fs::symlink_status(checkpoints, none))) return "";
  if (!fs::is_directory(checkpoints, none)) return kCheckpoints;
  for (const std::string& name : names_in(checkpoints)) {
    const std::string path = (fs::path(checkpoints) / name).string();
    if (!names_checkpoint(name)) continue;
    if (!in_place && fs::is_symlink(checkpoints, none))  // they can be of a run elsewhere
      return fmt::format("{}/{} behind a link", kCheckpoints, name);
    if (!is_own_checkpoint(path)) return fmt::format("{}/{}", kCheckpoints, name);
    if (in_place) continue;
    for (const std::string& entry : {foreign_entry(path), changed_file(path)})
      if (!entry.empty()) return fmt::format("{}/{}/{}", kCheckpoints, name, entry);
  }
  return "";
}

// The number of models of the sweep that a directory holds; 0 if it holds none.
std::int64_t models_of_sweep(const std::string& directory) {
  const std::string args = (fs::path(directory) / "args.json").string();
  if (look_at(args, "args") != Found::own) return 0;
  std::ifstream in(args);
  const json j = json::parse(in, nullptr, /*allow_exceptions=*/false);
  const bool is_sweep = j.is_object() && j.contains("sweep") && j["sweep"].is_string() && j["sweep"] != "" &&
                        j.contains("models") && j["models"].is_number_unsigned();
  return is_sweep ? j["models"].get<std::int64_t>() : 0;
}

// The directories of the models of the sweep that a directory holds. Others of these names are other runs'.
std::vector<std::string> model_runs(const std::string& directory) {
  std::vector<std::string> found;
  std::error_code none;
  const std::int64_t models = models_of_sweep(directory);
  for (const std::string& name : names_in(directory)) {
    const fs::path path = fs::path(directory) / name;
    const auto number = number_of_model(name);
    if (number && *number < models && !fs::is_symlink(path, none) &&
        look_at((path / "args.json").string(), "args") == Found::own)
      found.push_back(path.string());
  }
  return found;
}

void remove_all(const std::vector<std::string>& files) {
  for (const std::string& file : files) {
    std::error_code error;
    fs::remove_all(file, error);
    if (error) throw Error(fmt::format("'{}' cannot be removed: {}", file, error.message()));
  }
}

// Removes the files of a run, and no others.
void remove_run_in(const std::string& directory) {
  remove_all(own_files(directory));
  const std::string checkpoints = checkpoints_of(directory);
  for (const std::string& name : names_in(checkpoints))
    if (const auto path = (fs::path(checkpoints) / name).string();
        names_checkpoint(name) && is_own_checkpoint(path))
      remove_checkpoint(Files::system(), path);
  if (std::error_code none; !fs::is_symlink(checkpoints, none))
    fs::remove(checkpoints, none);  // if it is empty
}

// Returns what shows that a directory holds a run; empty if nothing does.
std::string sign_of_run(const std::string& directory) {
  for (const RunFile& file : kFiles)
    if (file.is_always_there && look_at((fs::path(directory) / file.name).string(), file.kind) == Found::own)
      return file.name;
  return checkpoint_steps(checkpoints_of(directory)).empty() ? "" : kCheckpoints;
}

// Returns the lines of metrics.jsonl for the batches below `batches`, and of a batch that came again the last
// one: a killed run may have written more lines, or half a line at the end. Objects that people have added
// stay behind the batch that they follow. Says which lines are neither.
std::string first_steps(const std::string& file, std::int64_t batches) {
  std::ifstream in(file);
  std::map<std::int64_t, std::string> by_step, added;
  std::int64_t number = 0, last = -1;
  for (std::string line; std::getline(in, line);) {
    ++number;
    const json j = json::parse(line, nullptr, /*allow_exceptions=*/false);
    const bool numbered =  // a run's line, not one that a user has added
        j.is_object() && j.contains("step") && j["step"].is_number_integer() && j.contains("loss");
    if (numbered) last = std::min(j["step"].get<std::int64_t>(), batches);
    if (numbered && j["step"] < batches) by_step[j["step"]] = line;
    if (!numbered && j.is_object())
      added[last] += line + "\n";
    else if (!numbered && !in.eof())
      log_warning(fmt::format("'{}': line {} is damaged, and is left out", file, number));
  }
  require_read(file, in);
  for (auto& [step, line] : by_step) line += "\n";
  for (const auto& [step, lines] : added) by_step[step] += lines;
  std::string text;
  for (const auto& [step, lines] : by_step) text += lines;
  return text;
}

}  // namespace

std::string to_json(const TrainOptions& o) {
  json j{{"command_line", o.command_line}};
  for (const Flag& flag : flags())
    if (change_by(flag, o) != Change::unrecorded) j[flag.key] = value_of(flag, o);
  return j.dump(1) + "\n";
}

RunDirectory::RunDirectory(const TrainOptions& options) : directory_(options.output) {
  std::error_code none;
  if (keeps() && fs::is_directory(directory_, none)) lock_ = locked(directory_);
}

void RunDirectory::require_no_foreign_file(const TrainOptions& options) const {
  std::vector<std::string> runs{directory_};
  if (!in_place_)
    std::ranges::copy(model_runs(directory_), std::back_inserter(runs));  // they are removed too
  for (const std::string& run : runs)
    if (const std::string foreign = foreign_file(run, options, in_place_); !foreign.empty())
      throw Error(fmt::format(
          "--output '{}' holds {}, which no run of this version wrote, or which was changed since, and which a run "
          "would replace: it stays; choose another directory, or move it away",
          run, foreign));
}

// Another run that gives up removes the directory that it made, until this one has locked it.
void RunDirectory::make() {
  constexpr int kAttempts = 10;
  std::string reason;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    Directories made;
    try {
      made = make_with_parents(directory_);
    } catch (const Error& e) {
      reason = e.what();
      continue;
    }
    if (!made.empty()) lock_.reset();  // of a directory that is gone
    if (!lock_) lock_ = locked(directory_);
    if (std::error_code none; fs::is_directory(directory_, none)) {
      created_ = removed_if_empty(std::move(made));
      return;
    }
    lock_.reset();
    reason = "another process removes it";
  }
  throw Error(fmt::format("--output '{}' cannot be created: {}", directory_, reason));
}

void RunDirectory::remove_if_empty() const {
  if (created_) remove_empty(*created_);
}

void RunDirectory::claim(const TrainOptions& options, bool in_place) {
  if (!keeps()) return;
  const bool fresh = !lock_;
  make();
  in_place_ = in_place;
  std::error_code none;
  require_no_foreign_file(options);
  require_no_input(options);
  lock_earlier_models(options);
  // Also below the directories of a sweep's models.
  const fs::path inside =
      fs::weakly_canonical(options.trace, none).lexically_relative(fs::weakly_canonical(directory_, none));
  if (!options.trace.empty() && !inside.empty() && *inside.begin() != "..") {
    const std::string kind = kind_of(inside.filename().string());
    if (*inside.begin() == kCheckpoints || (!kind.empty() && kind != "trace"))
      throw Error(fmt::format("--trace '{}' is the name of another file of the run", options.trace));
  }
  const std::string run = sign_of_run(directory_);
  if (!options.force && (fresh || !in_place) && !run.empty())  // also if another run has just created it
    throw Error(fmt::format(
        "--output '{}' holds a run already ({}); {}choose another directory, or replace the run with --force",
        directory_, run,
        checkpoint_steps(checkpoints_of(directory_)).empty() ? "" : "continue it with --resume auto, "));
  const std::vector<std::string> single = own_files(directory_);
  if (!options.force && run.empty() && !single.empty())
    throw Error(fmt::format(
        "--output '{}' holds {}, which this run would replace or remove: choose another directory, or give --force",
        directory_, fs::path(single[0]).filename().string()));
  require_writable("--output", path(kFiles[0].name));
}

// A file that the run reads would be gone after it.
void RunDirectory::require_no_input(const TrainOptions& options) const {
  if (in_place_) return;
  std::error_code none;
  for (const auto& [flag, input] :
       {std::pair("--plan", options.plan), {"--profile", options.profile}, {"--schedule", options.schedule}})
    for (const std::string& file : own_files(directory_))
      if (fs::equivalent(file, input, none))
        throw Error(fmt::format(
            "{} '{}' is a file of --output '{}', which this run would replace or remove: choose another directory, "
            "or copy the file",
            flag, input, directory_));
  std::vector<std::string> removed = model_runs(directory_);
  removed.push_back(checkpoints_of(directory_));
  for (const std::string& part : removed)
    if (options.resume != "auto" && lies_in(options.resume, part))
      throw Error(fmt::format(
          "--resume '{}' is in --output '{}', whose run this one would replace: choose another directory",
          options.resume, directory_));
}

// Those that this run's models do not lock.
void RunDirectory::lock_earlier_models(const TrainOptions& options) {
  const std::int64_t own = options.swept.empty() || options.simulate ? 0 : options.models;
  for (const std::string& model : model_runs(directory_))
    if (*number_of_model(fs::path(model).filename().string()) >= own) model_locks_.push_back(locked(model));
}

// Files that stayed would pass for this run's.
void RunDirectory::remove_earlier_run() {
  for (const std::string& model : model_runs(directory_)) {
    remove_run_in(model);
    std::error_code not_empty;
    fs::remove(model, not_empty);
  }
  remove_run_in(directory_);
}

void RunDirectory::start(const TrainOptions& options, std::int64_t batches) {
  if (!keeps()) return;
  require_no_foreign_file(options);  // one may have come since the claim
  if (batches == 0 || !in_place_) remove_earlier_run();
  std::error_code none;
  if (!fs::exists(directory_, none)) {  // a model's, which was of an earlier sweep too
    make_directories(Files::system(), directory_);
    lock_ = locked(directory_);
  }
  remove_all(own_files(directory_, "collectives"));
  for (const std::string& name : names_in(directory_))  // else what they link to would be written
    if (!kind_of(name).empty() && kind_of(name) != "table" && kind_of(name) != "metrics" &&
        fs::is_symlink(path(name), none) && look_at(path(name), kind_of(name)) == Found::own)
      remove_file(Files::system(), path(name));
  write_json(path("args.json"), "args", to_json(options));
  fs::remove(path("summary.json"), none);  // of a run that goes on; only now, since that can have failed
  for (const std::string& name : names_in(directory_))
    if (is_unfinished(name)) remove_file(Files::system(), path(name));
  if (look_at(path("config.toml"), "config") != Found::foreign)  // else edited, before it goes on
    write_file(path("config.toml"), config_text(options.config));
  if (options.simulate) return;
  models_ = options.models;
  events_every_ = options.tensorboard;
  go_on_after(batches);
}

void RunDirectory::go_on_after(std::int64_t batches) {
  metrics_.close();
  const std::string lines = first_steps(path("metrics.jsonl"), batches);
  replace_durably(Files::system(), path("metrics.jsonl"),
                  [&](const Sink& sink) { sink(std::as_bytes(std::span(lines))); });
  metrics_.open(path("metrics.jsonl"), std::ios::app);
  if (!metrics_) throw Error(fmt::format("'{}' cannot be written", path("metrics.jsonl")));
  csv_ = SummaryCsv(path("summary.csv"), models_, batches);
  if (events_every_ > 0) events_.emplace(directory_, batches);
}

std::string RunDirectory::path(const std::string& file) const {
  return (fs::path(directory_) / file).string();
}

Callbacks RunDirectory::callbacks() {
  if (!keeps()) return {};
  return {.batch = [this](const BatchResult& b) { record([&] { batch(b); }); },
          .end_epoch = [this](const EpochResult& e) { record([&] { epoch(e); }); },
          .end = [this](const EpochResult& e) { record([&] { csv_.end(e); }); },
          .non_finite =
              [this](const NonFiniteBatch& b) {
                if (b.back_to >= 0) record([&] { go_on_after(b.back_to); });
              }};
}

// A full disk ends the recording, not the training.
template <class F> void RunDirectory::record(const F& write) try {
  if (!lost_) write();
} catch (const Error& e) {
  lost_ = true;
  log_error(fmt::format("training continues, but nothing more is recorded: {}", e.what()));
}

void RunDirectory::batch(const BatchResult& b) {
  const auto [all, is_first] = earlier_turns_.try_emplace(b.batch, b);
  if (!is_first) all->second.seconds += b.seconds;
  for (const int m : b.models)
    all->second.loss.at(static_cast<std::size_t>(m)) = b.loss.at(static_cast<std::size_t>(m));
  if (!b.is_last_turn) return;
  write(all->second);
  earlier_turns_.erase(all);
}

void RunDirectory::write(const BatchResult& b) {
  const double images_per_second = static_cast<double>(b.samples) / b.seconds;
  json line{{"step", b.batch},
            {"epoch", b.epoch},
            {"loss", per_model(b.loss)},
            {"lr", per_model(b.lr)},
            {"step_ms", b.seconds * kMsPerSecond},
            {"images_per_second", images_per_second}};
  for (const PredictionError& e : b.prediction)
    line["prediction"].push_back({{"stage", e.stage},
                                  {"updates", e.updates},
                                  {"predicted_rmse", per_model(e.predicted)},
                                  {"stale_rmse", per_model(e.stale)}});
  metrics_ << line.dump() << '\n' << std::flush;
  if (!metrics_) throw Error(fmt::format("'{}' cannot be written: is the disk full?", path("metrics.jsonl")));
  if (!events_ || b.batch % events_every_ != 0) return;
  scalars(*events_, "train/loss", b.batch, b.loss);
  scalars(*events_, "train/lr", b.batch, b.lr);
  events_->scalar("train/images_per_second", b.batch, images_per_second);
}

void RunDirectory::epoch(const EpochResult& e) {
  csv_.epoch(e);
  if (!events_) return;
  scalars(*events_, "epoch/train_loss", e.batches - 1, e.loss);
  scalars(*events_, "epoch/test_accuracy", e.batches - 1, e.accuracy);
}

void RunDirectory::summary(const Summary& s) {
  if (!keeps()) return;
  json j{{"peak_bytes", s.peak_bytes},
         {"planned_peak_bytes", s.planned_peak_bytes},
         {"live_peak_bytes", s.live_peak_bytes}};
  if (s.step_ms > 0) {  // else the run only evaluated what an earlier one had trained
    j["images_per_second"] = s.images_per_second;
    j["step_ms"] = s.step_ms;
  }
  if (s.skipped > 0) j["skipped"] = s.skipped;
  if (s.simulated) j["simulated"] = true;
  if (!s.train_loss.empty()) j["train_loss"] = per_model(s.train_loss);
  if (!s.test_accuracy.empty()) j["test_accuracy"] = per_model(s.test_accuracy);
  write_json(path("summary.json"), "summary", j.dump(1) + "\n");
}

void RunDirectory::plan(const std::string& text) const {
  if (keeps() && !text.empty()) write_json(path("plan.json"), "plan", text);
}

void RunDirectory::memory_problems(const std::vector<DevicePlan>& devices) const {
  if (!keeps()) return;
  for (std::size_t d = 0; d < devices.size(); ++d)
    write_json(path(d == 0 ? "memory.json" : fmt::format("memory-{}.json", d)), "memory",
               to_json(devices[d].step.problem));
}

void RunDirectory::all_reduces(const AllReduceReport& report) {
  const auto has_plan = [](const DeviceAllReduces& device) { return !device.plan.groups.empty(); };
  if (!keeps() || std::ranges::none_of(report.devices, has_plan)) return;
  record([&] {
    for (const std::string& file : own_files(directory_, "all-reduces"))
      if (!file.ends_with(kAllReduces)) remove_all({file});
    for (std::size_t d = 0; d < report.devices.size(); ++d)
      if (has_plan(report.devices[d]))
        write_json(all_reduce_file(path(kAllReduces), d), "all-reduces", to_json(report, d));
  });
}

}  // namespace tandem::apps
