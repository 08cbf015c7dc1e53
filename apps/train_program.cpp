#include "train_program.h"

#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <exception>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include <tandem/engine.h>

#include "log.h"
#include "signal_watch.h"
#include "standard_output.h"

namespace tandem::apps {
namespace {

constexpr int kFailed = 1;
constexpr auto kPatience = std::chrono::seconds(2);
constexpr auto kFirstNotice = std::chrono::seconds(10);
constexpr auto kLastWords = std::chrono::milliseconds(300);

// Returns whether this is one of several processes, and not the one that reports.
bool leaves_it_to_another(const MpiSession* mpi, int reporter) {
  try {
    const LaunchEnvironment env = launch_environment();
    return mpi ? mpi->rank() != reporter : env.launched && env.size > 1 && env.rank != reporter;
  } catch (const std::exception&) {
    return false;
  }
}

// A run that a signal ends can also fail for a reason of its own.
std::string last_words(const std::exception& error, int signal) {
  const std::string why = message_of(error);
  if (signal == 0) return why;
  const std::string interrupted = interruption(signal);
  return why.find(interrupted) != std::string::npos ? interrupted : fmt::format("{}: {}", interrupted, why);
}

// One rank reports for all, because an error reaches every rank. The others report it only if that rank has
// not ended the job within kPatience.
int fail(const std::exception& error, int signal, const MpiSession* mpi, int reporter) {
  if (signal == 0) signal = signal_behind(error);
  if (leaves_it_to_another(mpi, reporter)) std::this_thread::sleep_for(kPatience);
  log_error(last_words(error, signal));
  std::fflush(nullptr);
  const int code = signal ? status_after(signal) : kFailed;
  // mpirun passes a signal to all ranks. The end of the job would kill those that do not yet have written
  // what they were doing.
  if (mpi && signal == SIGTERM) std::this_thread::sleep_for(kLastWords);
  if (mpi) end_mpi_job(code);
  return code;
}

// The runs of one command: several, if a sweep is over batch sizes.
class Runs {
 public:
  // What flags, directories and numbers of images forbid is found before the first run trains. `reporter` is
  // the rank that reports errors.
  template <class Make>
  Runs(const std::vector<TrainOptions>& runs, int& reporter, const Make& make) : options_(runs) {
    try {
      for (const TrainOptions& options : runs) {
        runs_.push_back(make(options));
        reporter = runs_.back()->main_rank();
        runs_.back()->claim();
      }
    } catch (...) {
      end();
      throw;
    }
  }
  ~Runs() { end(); }
  Runs(const Runs&) = delete;
  Runs& operator=(const Runs&) = delete;

  void train(bool are_processes) {
    if (runs_.empty()) return;
    const CifarImages images = read_cifar(options_);
    if (runs_.size() == 1) return runs_[0]->run(images);
    try {
      for (std::size_t i = 0; i < runs_.size(); ++i) {
        log_info(fmt::format(
            "models with other batches are in runs of their own: this is run {} of {}, with batches of {}",
            i + 1, runs_.size(), options_[i].batch_size));
        train_one(i, images, are_processes);
      }
    } catch (...) {
      print_ranking(ranking_);
      throw;
    }
    print_ranking(ranking_);
    if (!ranking_.empty() && std::ranges::all_of(ranking_, &RankedModel::diverged))
      throw Error("all models of the sweep have diverged; lower the learning rate, or look at the data");
  }

 private:
  // A run whose models have all diverged does not keep the next one from training. Where ranks are processes,
  // it ends them.
  void train_one(std::size_t i, const CifarImages& images, bool are_processes) {
    TrainingRun& run = *runs_[i];
    try {
      run.run(images);
    } catch (const NonFinite& e) {
      if (are_processes) throw;
      log_error(e.what());
    }
    std::ranges::move(run.ranking(), std::back_inserter(ranking_));
    const int signal = i + 1 < runs_.size() ? run.signal() : 0;
    runs_[i].reset();  // its networks
    if (signal == 0) return;
    if (!options_[i].output.empty())
      log_info(fmt::format("the same command with --resume auto{} continues with run {} of {}",
                           options_[i].force ? ", without --force," : "", i + 2, runs_.size()));
    throw Aborted(interruption(signal));
  }
  // The last one first: its directory can lie in one that the first one made, and removes if it is empty.
  void end() {
    while (!runs_.empty()) runs_.pop_back();
  }

  const std::vector<TrainOptions>& options_;
  std::vector<std::unique_ptr<TrainingRun>> runs_;
  std::vector<RankedModel> ranking_;
};

}  // namespace

int train(int argc, char** argv, const TrainingRun::Adjust& adjust) {
  prepare_teams(argv);
  // Makes large tensors come from the system and return to it. By default, the first one that is freed raises
  // this limit; then the copies of the state, one for each checkpoint, leave holes in every thread's heap.
  mallopt(M_MMAP_THRESHOLD, 1 << 20);
  std::signal(SIGXFSZ, SIG_IGN);  // if a file reaches its size limit, the write fails instead
  start_log("train_cifar");
  std::optional<SignalWatch> signals;
  std::unique_ptr<MpiSession> mpi;
  int reporter = 0;
  try {
    signals.emplace();
    require_standard_output();
    const std::vector<TrainOptions> runs = parse(argc, argv);
    if (!runs.empty() && runs[0].transport == "mpi") {
      const std::chrono::milliseconds deadline(std::llround(runs[0].deadline * 1000));
      const auto patience = std::min<std::chrono::milliseconds>(kFirstNotice, deadline / 2);
      mpi = std::make_unique<MpiSession>(MpiStart{patience, deadline, log_error});
    }
    // If what reads its lines ends, such as `tee` after Ctrl-C, it still saves what it learned.
    if (!runs.empty() && !runs[0].output.empty()) std::signal(SIGPIPE, SIG_IGN);
    Runs all(runs, reporter, [&](const TrainOptions& options) {
      return std::make_unique<TrainingRun>(options, *signals, mpi.get(), adjust);
    });
    all.train(mpi && mpi->size() > 1);
    finish_standard_output();
    return 0;
  } catch (const std::exception& e) {
    return fail(e, signals ? signals->signal() : 0, mpi.get(), reporter);
  }
}

}  // namespace tandem::apps
