// How a run ends before its last batch: by a signal, or because of another rank.
#include <chrono>
#include <csignal>

#include <fmt/format.h>

#include <tandem/engine.h>
#include <tandem/train/rank_talk.h>

#include "log.h"
#include "progress_line.h"
#include "trace_file.h"
#include "training_run.h"

namespace tandem::apps {
using namespace engine;
namespace {

constexpr std::chrono::seconds kAgreement{5};    // ranks need some milliseconds
constexpr std::chrono::milliseconds kSoon{300};  // mpirun kills ranks a second after SIGTERM

std::vector<std::int64_t> saved_steps(const TrainOptions& o) {
  return o.output.empty() ? std::vector<std::int64_t>() : checkpoint_steps(checkpoints_of(o.output));
}

// What --resume auto will find of a run that a signal ended.
std::string what_is_left(const TrainOptions& o, bool save_failed) {
  const std::vector<std::int64_t> saved = saved_steps(o);
  if (!saved.empty())
    return fmt::format("the same command with --resume auto{} continues from batch {}, saved in {}/{}",
                       o.force ? ", without --force," : "", saved.back(), checkpoints_of(o.output),
                       checkpoint_name(saved.back()));
  if (o.checkpoint_every > 0 && !save_failed)
    return fmt::format("no checkpoint was saved yet: the first is due after {}",
                       counted(o.checkpoint_every, "batch"));
  return o.output.empty() ? "no checkpoint was saved: there is no --output to keep one"
                          : "no checkpoint was saved";
}

}  // namespace

// Ranks that are processes may wait for this one between two steps, where its failure does not reach them.
void TrainingRun::tell_others(const std::string& why) const {
  const auto watch = mpi_ ? mpi_->watch() : nullptr;
  if (watch) watch->abort(why);
}

// Until the result is gone, the watch of the ranks can end this rank's run.
std::shared_ptr<const void> TrainingRun::ending_by(Trainer& trainer) const {
  const auto watch = mpi_ ? mpi_->watch() : nullptr;
  if (!watch) return nullptr;
  watch->set_ending({[&trainer] { return trainer.hold(); },
                     [&trainer](std::int64_t batch, const std::string& why) { trainer.end_at(batch, why); }});
  return {watch.get(), [watch](const void*) { watch->set_ending(); }};
}

int TrainingRun::signal() const {
  return static_cast<int>(RankTalk(meeting_.get(), main_rank()).from_root(std::int64_t{signals_.signal()}));
}

// At once, as a rank does that cannot save a checkpoint.
void TrainingRun::stop_run(Trainer& trainer, int signal) const {
  say_what_it_did(signal, what_it_does(trainer));
  trainer.with_session([&](Session& session) { session.stop(interruption(signal)); });
}

// The first signal. A run that keeps checkpoints ends with one, after the batches that have begun. mpirun
// sends SIGTERM also if another rank has died: then the ranks do not agree, and this one says what it was
// doing.
void TrainingRun::end_run(Trainer& trainer, int signal) const {
  const auto watch = mpi_ ? mpi_->watch() : nullptr;
  if (options_.output.empty() || (are_processes() && !watch)) return stop_run(trainer, signal);
  is_ending_ = true;
  const std::string doing = what_it_does(trainer);
  end_line();
  log_info(
      "the run ends with a checkpoint, after the batches or the evaluation that have begun; another signal "
      "ends it at once");
  if (watch && signal != SIGUSR1) {  // which Open MPI passes on; it kills the ranks a second after others
    const std::vector<std::int64_t> saved = saved_steps(options_);
    log_info(fmt::format(
        "if they take more than a second, mpirun kills the ranks, and {} is left; SIGUSR1 (kill -USR1), sent to "
        "mpirun, leaves them their time",
        saved.empty() ? "no checkpoint" : "the checkpoint of batch " + std::to_string(saved.back())));
  }
  if (!watch) return trainer.end_soon(interruption(signal));
  watch->request_end(interruption(signal));
  if (watch->agreed_within(kSoon)) return;
  say_what_it_did(signal, doing);  // a rank is gone, or stopped
  if (watch->agreed_within(kAgreement)) return;
  for (const int rank : watch->unanswered())
    log_error(fmt::format("rank {} has not answered for {} s: it is stopped, or its machine is gone", rank,
                          kAgreement.count()));
  if (signal != SIGTERM) watch->write();  // it has been written for SIGTERM
  trainer.with_session([&](Session& session) { session.stop(interruption(signal)); });
  trainer.end_at(0, interruption(signal));  // if it waits for batches that are held
}

// Of a rank that is a process; empty for others.
std::string TrainingRun::what_it_does(Trainer& trainer) const {
  if (!mpi_) return "";
  std::string doing;
  trainer.with_session([&](Session& session) { doing = session.doing(); });
  if (!doing.empty()) return "in: " + doing;
  const auto watch = mpi_->watch();
  return watch ? "between two steps, and " + watch->doing() : "between two steps";
}

void TrainingRun::say_what_it_did(int signal, const std::string& doing) const {
  if (!mpi_ || signal != SIGTERM) return;
  log_error(fmt::format("rank {} got SIGTERM; it was {}", mpi_->rank(), doing));
  if (const auto watch = mpi_->watch()) watch->write();
}

// For a run that ended early. If the file cannot be written, that is logged, but is not why the run ended.
void TrainingRun::save_what_was_traced(Trainer& trainer) const {
  if (mpi_) {  // the other ranks may be gone
    if (!options_.trace.empty()) log_info("an interrupted run of several processes leaves no trace");
    return;
  }
  try {
    write_trace(options_.trace, trainer.session().timeline(0, trainer.training_program()),
                options_.trace_steps);
    if (!options_.trace.empty()) log_info(fmt::format("the trace until here is in {}", options_.trace));
  } catch (const Error& e) {
    log_error(e.what());
  }
}

// Waits until the current saves have ended, successfully or not.
void TrainingRun::say_what_is_left(CheckpointWriter* writer, ProgressLine& progress) {
  progress.saving();
  if (writer) writer->wait();
  model_runs_.wait();
  progress.saved();
  try {
    log_info(what_is_left(options_, failed_save_ >= 0));
  } catch (const Error& e) {
    log_error(e.what());
  }
}

}  // namespace tandem::apps
