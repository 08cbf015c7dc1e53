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
    std::vector<std::unique_ptr<TrainingRun>> made;
    for (const TrainOptions& options : runs)
      made.push_back(std::make_unique<TrainingRun>(options, *signals, mpi.get(), adjust));
    for (const auto& run : made) {
      reporter = run->main_rank();
      run->claim();  // what a later run cannot do is found before the first one trains
    }
    std::vector<RankedModel> ranking;
    for (std::size_t i = 0; i < made.size(); ++i) {
      if (runs.size() > 1)
        log_info(fmt::format(
            "models with other batches are in runs of their own: this is run {} of {}, with batches of {}",
            i + 1, runs.size(), runs[i].batch_size));
      made[i]->run();
      std::ranges::move(made[i]->ranking(), std::back_inserter(ranking));
      made[i].reset();
    }
    if (runs.size() > 1) print_ranking(std::move(ranking));
    finish_standard_output();
    return 0;
  } catch (const std::exception& e) {
    return fail(e, signals ? signals->signal() : 0, mpi.get(), reporter);
  }
}

}  // namespace tandem::apps
