// The ranks of a run: how they reach each other, and what they must have in common.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <numeric>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <tandem/core/base/machine.h>
#include <tandem/core/base/rng.h>
#include <tandem/dist/launch.h>
#include <tandem/engine.h>
#include <tandem/train/rank_talk.h>

#include "flags.h"
#include "log.h"
#include "training_run.h"

namespace tandem::apps {
using namespace engine;
namespace {

// What decides which kernels oneDNN chooses, and with them the last bits of a result.
std::string instruction_sets() {
  std::string sets;
#if defined(__x86_64__) && defined(__GNUC__)
  for (const auto& [name, has] : {std::pair("avx2", __builtin_cpu_supports("avx2")),
                                  {"fma", __builtin_cpu_supports("fma")},
                                  {"avx512f", __builtin_cpu_supports("avx512f")},
                                  {"avx512bw", __builtin_cpu_supports("avx512bw")},
                                  {"avx512vnni", __builtin_cpu_supports("avx512vnni")},
                                  {"avx512bf16", __builtin_cpu_supports("avx512bf16")}})
    if (has) sets += fmt::format("{} ", name);
#endif
  const char* const limit = std::getenv("ONEDNN_MAX_CPU_ISA");
  return sets + (limit ? limit : "");
}

// What helps if a rank is lost. Checkpoints may lie on another machine, so this does not look for them.
std::string advice_at_deadline(const TrainOptions& o) {
  if (o.output.empty() || o.evaluate) return "";
  const std::string calls = (std::filesystem::path(o.output) / "collectives-RANK.jsonl").string(),
                    resume = fmt::format(
                        "; the same command with --resume auto{} continues from the last checkpoint",
                        o.force ? ", without --force," : "");
  return fmt::format("the last collectives of the ranks are in {}{}", calls,
                     o.checkpoint_every > 0 ? resume : "");
}

}  // namespace

void TrainingRun::meet() const {
  if (!meeting_) return;
  std::vector<int> all(static_cast<std::size_t>(meeting_->size()));
  std::iota(all.begin(), all.end(), 0);
  meeting_->barrier(all, 0);
}

void TrainingRun::agree_on_arguments() const {
  std::vector<Agreed> mine;
  for (const Flag& flag : flags())  // the images count, not the path of --data
    if (change_by(flag, options_) != Change::unrecorded && flag.name != "data")
      mine.push_back({"--" + flag.name, fnv1a(value_of(flag, options_).dump())});
  mine.push_back({"--sweep, in its batch sizes", fnv1a(options_.part.all)});
  mine.push_back({"--output", fnv1a(options_.output)});
  mine.push_back({"the processor's instructions, with which losses differ", fnv1a(instruction_sets())});
  mine.push_back({"the pipeline schedule", fnv1a(begin_.schedule)});
  if (profile_) mine.push_back({"the profile", fnv1a(profile_->to_json())});
  mine.push_back({"the training data", fnv1a(begin_.train_data)});
  mine.push_back({"the test data", fnv1a(begin_.test_data)});
  mine.push_back({"the checkpoint that the run continues", fnv1a(start_.digest)});
  mpi_->agree(mine);
}

// A simulation may be of another machine. Among processes the main rank's counts, which would measure.
void TrainingRun::require_profile_of_this_machine() {
  const std::string& theirs = profile_->machine();
  const std::string ours = RankTalk(meeting_.get(), main_rank()).from_root(machine_name());
  if (theirs.empty() || theirs == ours) return;
  if (is_main())
    log_warning(fmt::format(
        "the profile of --profile is of another machine ({}; this one is {}): it is not used", theirs, ours));
  profile_.reset();
}

std::vector<std::unique_ptr<Comm>> TrainingRun::comms() const {
  std::vector<std::unique_ptr<Comm>> comms;
  const int ranks = options_.ranks * options_.devices;
  if (ranks == 1) return comms;
  CommOptions options = comm_options();
  if (!options_.link.empty()) options.link = parse_link(options_.link);
  options.collective = parse_collective(options_.collective);
  if (!mpi_) return thread_comms(ranks, options);
  comms.push_back(mpi_->comm(options));
  return comms;
}

// With a watch, which ends the job if a rank does not come.
CommOptions TrainingRun::comm_options() const {
  CommOptions options;
  options.watch = WatchOptions{.deadline = std::chrono::milliseconds(std::llround(options_.deadline * 1000)),
                               .directory = options_.evaluate ? "" : options_.output,
                               .tell = log_error,
                               .end =
                                   [processes = mpi_ != nullptr] {
                                     std::fflush(nullptr);
                                     if (processes) end_mpi_job(EXIT_FAILURE);
                                     std::_Exit(EXIT_FAILURE);
                                   },
                               .advice = advice_at_deadline(options_),
                               .lanes =
                                   [running = running_](int rank) {
                                     const std::lock_guard lock(running->mutex);
                                     return running->session ? running->session->doing(rank) : "";
                                   }};
  return options;
}

// Until the result is gone, the watch of the ranks can say what the session's lanes are in.
std::shared_ptr<const void> TrainingRun::announced(const Session& session) const {
  const auto set = [running = running_](const Session* now) {
    const std::lock_guard lock(running->mutex);
    running->session = now;
  };
  set(&session);
  return {&session, [set](const void*) { set(nullptr); }};
}

}  // namespace tandem::apps
